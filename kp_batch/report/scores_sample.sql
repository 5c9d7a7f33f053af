-- The traces of one in so many tasks; and of tasks that are frequent, one in so many traces.
-- Given: scores_extract and frequent_tasks; one_in, a number; the variable scores_sample (a path).
COPY (
    SELECT trace.*
    FROM scores_extract AS trace
    LEFT JOIN frequent_tasks AS frequent USING (objective_hash)
    WHERE CASE WHEN frequent.objective_hash IS NULL
        THEN hash(trace.objective_hash)
        ELSE hash(created_at, agent_id, score, novelty, confidence)
    END % $one_in = 0
) TO (getvariable('scores_sample')) (FORMAT parquet, COMPRESSION lz4);

CREATE OR REPLACE TEMP VIEW scores_sample AS
FROM read_parquet(getvariable('scores_sample'), hive_partitioning = false);
