-- Group: means
-- Example: FROM changes_by('framework', 'month', ['score']) ORDER BY p_value LIMIT 10;
-- Each task goes into its period and, as what was before, into the four that follow. An attempt
-- before and one now at the same task move together, so that the jackknife leaves out both. Holm's
-- p-values are over the keys of one period alone, so that what came later changes no finding.
CREATE MACRO changes_by(
    keys,
    period,
    measures := ['score'],
    condition := true
) AS TABLE
WITH tasks AS (
    SELECT
        key,
        measure,
        kp.number_of_period(period, begins) + later AS number,
        task,
        any_value(begins) FILTER (later = 0) AS begins,
        sum(n) FILTER (later = 0) AS n,
        sum(total) FILTER (later = 0) AS total,
        sum(n) FILTER (later > 0) AS n_before,
        sum(total) FILTER (later > 0) AS total_before
    FROM kp.task_sums(keys, measures, period, condition), range(5) AS of_periods(later)
    GROUP BY key, measure, number, task
),
totals AS (
    SELECT
        key,
        measure,
        number,
        any_value(begins) AS begins,
        sum(n) AS traces,
        sum(total) AS total,
        sum(n_before) AS traces_before,
        sum(total_before) AS total_before
    FROM tasks
    GROUP BY key, measure, number
    HAVING count(n) > 0
),
sums AS (
    SELECT
        * EXCLUDE (n, n_before, shift, shift_before),
        (measure, number) AS asked_together,
        count(n) AS tasks,
        sum(n * n) AS squares,
        sum(shift * shift) AS shifts,
        count(n_before) AS tasks_before,
        sum(n_before * n_before) AS squares_before,
        sum(shift_before * shift_before) AS shifts_before,
        count(*) AS tasks_of_both,
        sum(pow(coalesce(n / traces, 0) + coalesce(n_before / traces_before, 0), 2))
            AS squares_of_both,
        sum(pow(coalesce(shift, 0) - coalesce(shift_before, 0), 2)) AS shifts_of_both
    FROM (
        SELECT
            totals.*,
            n,
            n_before,
            (n * totals.total / traces - tasks.total) / (traces - n) AS shift,
            (n_before * totals.total_before / traces_before - tasks.total_before)
            / (traces_before - n_before) AS shift_before
        FROM tasks
        JOIN totals USING (key, measure, number)
    )
    GROUP BY ALL
),
parts AS (
    FROM kp.parts_of_changes(keys, period, condition AND list_contains(kp.names(measures), 'score'))
)
SELECT
    values_.* EXCLUDE (key),
    begins,
    measure,
    traces,
    tasks,
    mean,
    traces_before,
    tasks_before,
    mean_before,
    change,
    low,
    high,
    p_value,
    adjusted_p_value,
    CASE WHEN measure = 'score' AND change IS NOT NULL THEN parts.parts END AS parts
FROM kp.key_values(keys, condition) AS values_
JOIN kp.intervals_of_changes('sums') USING (key)
LEFT JOIN parts USING (key, number)
ORDER BY COLUMNS(kp.names(keys)), begins, list_position(kp.names(measures), measure);

COMMENT ON MACRO TABLE changes_by IS 'By how much does the mean of a period (day, week, month, quarter or year) differ from the mean of the four periods before? A row is a measure in a period, for the traces with equal values of the keys. low, high: a 95% interval of the change. p_value: the probability of such a change if only the draw of tasks differs. adjusted_p_value: by Holm''s method, over the keys of the period. All four are null below 5 effective tasks on either side. parts sum to the change in score.';
