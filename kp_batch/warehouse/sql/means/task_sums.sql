CREATE MACRO task_sums(keys, measures, period, condition) AS TABLE
WITH sums AS (
    SELECT
        hash(*COLUMNS(kp.names(keys))) AS key,
        COLUMNS([period]) AS begins,
        hash(objective_hash) AS task,
        count(*) AS n,
        sum(COLUMNS(kp.names(measures))::DOUBLE)
    FROM kp.trace_measures
    WHERE condition
    GROUP BY ALL
)
UNPIVOT sums ON * EXCLUDE (key, begins, task, n) INTO NAME measure VALUE total;

COMMENT ON MACRO TABLE task_sums IS 'What are the sums of some measures over the n attempts at each task, by the hashes of the keys and of the task? The questions about means use this one.';
