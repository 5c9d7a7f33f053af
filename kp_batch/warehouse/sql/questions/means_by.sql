-- Group: means
-- Example: FROM means_by(['framework', 'profile'], ['score', 'success']);
-- Attempts at one task are alike, so the sample consists of tasks, not of traces. `shift_squares` are the
-- jackknife's: the squares of the change of a mean if one task is left out.
CREATE MACRO means_by(
    keys,
    measures := ['score', 'novelty', 'success', 'share_at_threshold'],
    condition := true
) AS TABLE
WITH task_sums AS (
    FROM kp.task_sums(
        keys,
        kp.names(measures) || CASE
            WHEN list_contains(kp.names(measures), 'overconfidence') THEN ['confidence', 'success']
            ELSE []
        END,
        'everything',
        condition
    )
),
totals AS (
    SELECT key, measure, sum(n)::BIGINT AS traces, sum(total) AS total
    FROM task_sums
    GROUP BY ALL
),
sums AS (
    SELECT
        totals.*,
        count(*) AS tasks,
        sum(n * n)::DOUBLE AS squares,
        sum(pow(of_task.total, 2) / n) AS between_tasks,
        sum(pow((n * totals.total / traces - of_task.total) / (traces - n), 2)) AS shift_squares
    FROM task_sums AS of_task
    JOIN totals USING (key, measure)
    GROUP BY ALL
)
SELECT
    keys_.* EXCLUDE (key),
    measure,
    traces,
    tasks,
    mean,
    low,
    high
FROM kp.key_values(keys, condition) AS keys_
JOIN kp.intervals_of_means('sums') USING (key)
WHERE list_contains(kp.names(measures), measure)
ORDER BY COLUMNS(kp.names(keys)), list_position(kp.names(measures), measure);

COMMENT ON MACRO TABLE means_by IS 'What are the means of some measures of trace_measures? A row is a measure, for the traces with equal values of the keys that meet the condition. low, high: a 95% interval, null below 5 effective tasks.';
