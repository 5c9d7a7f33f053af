-- Writes all published traces by group, in replay order, with the inputs of their scores except novelty.
-- Given: the schema published (its tables), the catalog's macros, cache_group (SQL, see cache_groups.py), and
-- the variable replay (a path).
COPY (
    WITH grouped AS NOT MATERIALIZED (
        SELECT * EXCLUDE (cache_group), $cache_group AS cache_group
        FROM published.scores
        LEFT JOIN (SELECT source_file, path_keys FROM published.files) USING (source_file)
    ),
    groups AS (
        SELECT
            cache_group,
            (sum(count(*)) OVER (ORDER BY cache_group) - count(*))::BIGINT AS first
        FROM grouped
        GROUP BY cache_group
    )
    SELECT
        first, -- the group's first row
        created_at,
        text_hash,
        task_domain,
        grouped.complexity,
        grouped.tool_diversity,
        grouped.outcome_confidence,
        single_thought,
        recovery_bonus,
        low_diversity_penalty,
        profile_id,
        grouped.novelty AS current_novelty,
        score AS current_score,
        CASE
            WHEN shows_novelty(
                recorded_score,
                weights.novelty,
                single_thought,
                recovery_bonus,
                low_diversity_penalty
            ) THEN recorded_score
        END AS recorded_score
    FROM grouped
    JOIN groups ON groups.cache_group IS NOT DISTINCT FROM grouped.cache_group
    JOIN published.profiles AS weights USING (profile_id)
    ORDER BY first, created_at, trace_id
) TO (getvariable('replay')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16_384);
