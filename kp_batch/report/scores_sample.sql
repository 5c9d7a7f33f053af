-- The traces of one in so many tasks; and of tasks that are frequent, one in so many traces.
-- Given: scores_extract and frequent_tasks; one_in, a number; the variable scores_sample (a path).
COPY (
    SELECT
        trace.*,
        hash(trace.objective_hash) % $one_in = 0 AS of_task,
        CASE WHEN frequent.objective_hash IS NULL
            THEN of_task
            ELSE hash(created_at, agent_id, score, novelty, confidence) % $one_in = 0
        END AS of_trace
    FROM scores_extract AS trace
    LEFT JOIN frequent_tasks AS frequent USING (objective_hash)
    WHERE of_task OR of_trace
) TO (getvariable('scores_sample')) (FORMAT parquet, COMPRESSION lz4);

CREATE OR REPLACE TEMP VIEW scores_sample AS
SELECT * EXCLUDE (of_task, of_trace)
FROM read_parquet(getvariable('scores_sample'), hive_partitioning = false)
WHERE of_trace;

-- All traces of one in so many tasks, frequent or not: where each task counts once, all tasks must be as
-- likely to be among them.
CREATE OR REPLACE TEMP VIEW tasks_sample AS
SELECT * EXCLUDE (of_task, of_trace)
FROM read_parquet(getvariable('scores_sample'), hive_partitioning = false)
WHERE of_task;
