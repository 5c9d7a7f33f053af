-- By how much the means of periods differ from those of the four before, with the intervals of the catalog: of
-- their sums, in `changed`. As the question changes_by has it.
CREATE OR REPLACE TEMP TABLE changes AS
SELECT
    task_domain,
    begins,
    traces,
    tasks,
    mean,
    traces_before,
    tasks_before,
    mean_before,
    change,
    change - student_t(df) * error AS low,
    change + student_t(df) * error AS high,
    two_sided(normal_deviate((df - 0.5) * ln(1 + t * t / df), df)) AS p_value
FROM (
    SELECT
        *,
        error_of_change(
            variance_of_both, variance, variance_before, effective, effective_before
        ) AS error,
        CASE WHEN change = 0 THEN 0 ELSE least(abs(change) / error, 1e6) END AS t,
        degrees_of_change(
            change, variance, variance_before, effective, effective_before, 4 / squares_of_both
        ) AS df
    FROM (
        SELECT
            * REPLACE (nullif(traces_before, 0) AS traces_before),
            score / traces AS mean,
            score_before / nullif(changed.traces_before, 0) AS mean_before,
            round(mean - mean_before, 12) AS change,
            traces * traces / squares AS effective,
            nullif(changed.traces_before, 0) * changed.traces_before / squares_before AS effective_before,
            (tasks - 1) / tasks * shifts AS variance,
            (tasks_before - 1) / tasks_before * shifts_before AS variance_before,
            (tasks_of_both - 1) / tasks_of_both * shifts_of_both AS variance_of_both
        FROM changed
    )
);
