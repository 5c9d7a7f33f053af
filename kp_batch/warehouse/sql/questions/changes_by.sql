-- Group: means
-- Example: FROM changes_by('framework', 'month', ['score']) ORDER BY p_value LIMIT 10;
-- Each task goes into its period and, as what was before, into the four that follow. An attempt
-- before and one now at the same task move together, so that the jackknife leaves out both. To 12
-- decimals: a mean that stays differs in its last digits, and an error of these alone would call that a
-- change. Holm's p-values are over the keys of one period alone, so that what came later changes no
-- finding.
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
means AS (
    SELECT
        key,
        measure,
        number,
        any_value(begins) AS begins,
        sum(n)::BIGINT AS traces,
        sum(n_before)::BIGINT AS traces_before,
        sum(total) / sum(n) AS mean,
        sum(total_before) / sum(n_before) AS mean_before
    FROM tasks
    GROUP BY key, measure, number
    HAVING count(n) > 0
),
sides AS (
    SELECT
        key,
        measure,
        number,
        count(n) AS tasks,
        count(n_before) AS tasks_before,
        pow(any_value(traces), 2) / sum(pow(n, 2)) AS effective,
        pow(any_value(traces_before), 2) / sum(pow(n_before, 2)) AS effective_before,
        4 / sum(pow(coalesce(n / traces, 0) + coalesce(n_before / traces_before, 0), 2))
            AS effective_of_both,
        (count(n) - 1) / count(n) * sum(shift * shift) AS variance,
        (count(n_before) - 1) / count(n_before) * sum(shift_before * shift_before)
            AS variance_before,
        (count(*) - 1) / count(*) * sum(pow(coalesce(shift, 0) - coalesce(shift_before, 0), 2))
            AS variance_of_change
    FROM (
        SELECT
            *,
            (n * mean - total) / (traces - n) AS shift,
            (n_before * mean_before - total_before) / (traces_before - n_before) AS shift_before
        FROM tasks
        JOIN means USING (key, measure, number)
    )
    GROUP BY key, measure, number
),
doubts AS (
    SELECT
        *,
        round(mean - mean_before, 12) AS change,
        kp.error_of_change(
            variance_of_change, variance, variance_before, effective, effective_before
        ) AS error,
        CASE WHEN change = 0 THEN 0 ELSE least(abs(change) / error, 1e6) END AS t,
        kp.degrees_of_change(
            change, variance, variance_before, effective, effective_before, effective_of_both
        ) AS df,
        kp.two_sided(kp.normal_deviate((df - 0.5) * ln(1 + t * t / df), df)) AS p_value
    FROM means
    JOIN sides USING (key, measure, number)
),
ranked AS (
    SELECT
        *,
        count(p_value) OVER (PARTITION BY measure, number) AS asked,
        row_number() OVER (PARTITION BY measure, number ORDER BY p_value NULLS LAST, key) AS place
    FROM doubts
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
    change - kp.student_t(df) * error AS low,
    change + kp.student_t(df) * error AS high,
    p_value,
    CASE WHEN p_value IS NOT NULL THEN max(least(1, p_value * (asked - place + 1))) OVER (
        PARTITION BY measure, number ORDER BY place
    ) END AS adjusted_p_value,
    CASE WHEN measure = 'score' AND change IS NOT NULL THEN parts.parts END AS parts
FROM kp.key_values(keys, condition) AS values_
JOIN ranked USING (key)
LEFT JOIN parts USING (key, number)
ORDER BY COLUMNS(kp.names(keys)), begins, list_position(kp.names(measures), measure);

COMMENT ON MACRO TABLE changes_by IS 'By how much did the means of the traces that are alike in these columns change, from the four periods before (day, week, month, quarter or year) to each period? low and high: a 95% interval for tasks drawn anew. p_value: how likely such a change is where only the tasks differ, by chance; adjusted_p_value: by Holm, over the keys of the period. All are null below 5 effective tasks on either side. parts sum to the change in score. weights: the effect of other weights. cache_warming_up: the effect of more or fewer traces that came while their cache was warming up; where all traces of one side did, and none of the other, it is the whole change.';
