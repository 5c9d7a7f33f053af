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
        sqrt(
            variance_of_both
            + greatest(
                0,
                variance_of_all * (1 / effective + 1 / effective_before)
                - variance - variance_before
            )
        ) AS error,
        CASE WHEN change = 0 THEN 0 ELSE least(abs(change) / error, 1e6) END AS t,
        CASE
            WHEN effective_before IS NULL OR least(effective, effective_before) < 5 THEN NULL
            WHEN variance + variance_before < 1e-24
                THEN CASE WHEN change = 0 THEN least(effective, effective_before) - 1 END
            ELSE least(
                4 / squares_of_both - 1,
                pow(variance + variance_before, 2) / (
                    pow(variance, 2) / (effective - 1)
                    + pow(variance_before, 2) / (effective_before - 1)
                )
            )
        END AS df
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
            (
                (effective - 1) * effective * variance
                + (effective_before - 1) * effective_before * variance_before
            ) / (effective + effective_before - 2) AS variance_of_all,
            (tasks_of_both - 1) / tasks_of_both * shifts_of_both AS variance_of_both
        FROM changed
    )
);
