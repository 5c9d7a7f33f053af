-- The columns of every trace that the report needs, in one file: to open those of many days takes
-- longer than to read them, and a table would fill the memory. Without ids: they are long, and needed once.
-- Given: the catalog; function, which has its scores; and the variable scores_extract (a path).
-- Of the catalog it is, whatever temporary one hides it.
CREATE OR REPLACE TEMP MACRO published_scores() AS TABLE FROM kp.$function();

COPY (
    SELECT
        task_domain,
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
        nearest_age_s,
        cache_filling,
        success,
        confidence,
        n_tools,
        -- 96 bits of a SHA-256, which no two texts share, and which take a quarter of the memory.
        unhex(left(text_hash, 24)) AS text_id,
        unhex(left(objective_hash, 24)) AS objective_hash
    FROM published_scores()
) TO (getvariable('scores_extract')) (FORMAT parquet, COMPRESSION lz4);

CREATE OR REPLACE TEMP VIEW scores_extract AS
FROM read_parquet(getvariable('scores_extract'), hive_partitioning = false);
