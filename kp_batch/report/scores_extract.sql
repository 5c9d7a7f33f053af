-- The columns of every trace that the report needs, in one file: to open those of many days takes
-- longer than to read them, and a table would fill the memory. Without ids: they are long, and needed once.
-- Given: the catalog; function, which has its scores; and the variable scores_extract (a path).
-- Of the catalog it is, whatever temporary one hides it.
CREATE OR REPLACE TEMP MACRO published_scores() AS TABLE FROM kp.$function();

COPY (
    SELECT
        task_domain,
        agent_id,
        framework,
        created_at,
        complexity,
        novelty,
        tool_diversity,
        outcome_confidence,
        composite,
        single_thought,
        recovery_bonus,
        low_diversity_penalty,
        score,
        meets_threshold,
        recorded_score,
        max_similarity,
        cache_filling,
        success,
        confidence,
        n_tools,
        profile_id,
        -- 64 bits, which two of ten million texts hardly ever share, and which are sooner written, and compared.
        hash(objective_hash) AS objective_hash
    FROM published_scores()
) TO (getvariable('scores_extract')) (FORMAT parquet, COMPRESSION lz4);

CREATE OR REPLACE TEMP VIEW scores_extract AS
FROM read_parquet(getvariable('scores_extract'), hive_partitioning = false);
