-- 12 decimals: an unchanged mean differs in its last digits, and with an interval as small as that it would
-- count as a change. A macro copies an argument to each place that names it, so each step takes only columns.
CREATE MACRO intervals_of_changes(sums) AS TABLE
WITH means AS (
    SELECT
        * REPLACE (traces::BIGINT AS traces, nullif(traces_before, 0)::BIGINT AS traces_before),
        total / traces AS mean,
        total_before / nullif(sides.traces_before, 0) AS mean_before,
        pow(traces, 2) / squares AS effective,
        pow(nullif(sides.traces_before, 0), 2) / squares_before AS effective_before,
        (tasks - 1) / tasks * shifts AS variance,
        (tasks_before - 1) / tasks_before * shifts_before AS variance_before,
        (tasks_of_both - 1) / tasks_of_both * shifts_of_both AS variance_of_both
    FROM query_table(sums) AS sides
),
errors AS (
    SELECT
        *,
        round(mean - mean_before, 12) AS change,
        kp.error_of_change(
            variance_of_both, variance, variance_before, effective, effective_before
        ) AS error
    FROM means
),
degrees AS (
    SELECT
        *,
        CASE WHEN change = 0 THEN 0 ELSE least(abs(change) / error, 1e6) END AS t,
        kp.degrees_of_change(
            change, variance, variance_before, effective, effective_before, 4 / squares_of_both
        ) AS df
    FROM errors
),
unlikely AS (
    SELECT *, (df - 0.5) * ln(1 + t * t / df) AS y
    FROM degrees
),
deviates AS (
    SELECT *, kp.normal_deviate(y, df) AS deviate
    FROM unlikely
),
uncertainties AS (
    SELECT *, kp.two_sided(deviate) AS p_value, kp.student_t(df) * error AS margin
    FROM deviates
),
ranked AS (
    SELECT
        *,
        count(p_value) OVER (PARTITION BY asked_together) AS asked,
        row_number() OVER (PARTITION BY asked_together ORDER BY p_value NULLS LAST) AS place
    FROM uncertainties
)
SELECT
    *,
    change - margin AS low,
    change + margin AS high,
    CASE WHEN p_value IS NOT NULL THEN max(least(1, p_value * (asked - place + 1))) OVER (
        PARTITION BY asked_together ORDER BY place
    ) END AS adjusted_p_value
FROM ranked;

COMMENT ON MACRO TABLE intervals_of_changes IS 'What are the changes in a table of sums, with their intervals and p-values? A row of the table is a period, with traces, their total, tasks, and sums over the tasks: squares (n * n) and shifts (the squared change of the mean without the task). It has the same of the four periods before, named _before; tasks_of_both, squares_of_both, shifts_of_both; and asked_together: Holm''s method corrects over the rows with equal values of it. changes_by and the report use this one.';
