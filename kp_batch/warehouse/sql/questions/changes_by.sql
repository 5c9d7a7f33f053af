-- Group: like with like
-- Example: FROM changes_by(framework, 'month') ORDER BY p_value LIMIT 10;
-- Each task goes into its period and, as what was before, into the four that follow. Tasks are
-- numbered by a hash, which sorts faster than their texts. An attempt before and one now at the same
-- task move together, so that the jackknife leaves out both. Where few tasks score far from the others, a
-- side without them seems to vary too little: the variance is at least that of sides that vary alike. The
-- degrees of freedom are Welch's, but no more than the tasks of both sides have. To 12 decimals, as a
-- mean that stays differs in its last digits, and an error of these alone would call that a change.
CREATE MACRO changes_by(keys, period) AS TABLE
SELECT
    key,
    begins,
    traces,
    tasks,
    mean,
    traces_before,
    tasks_before,
    mean_before,
    change,
    change - kp.student_t(df) * error AS low,
    change + kp.student_t(df) * error AS high,
    kp.two_sided(kp.normal_deviate((df - 0.5) * ln(1 + t * t / df), df)) AS p_value
FROM (
    SELECT
        *,
        sqrt(
            variance_of_change
            + greatest(
                0,
                variance_of_all * (1 / effective + 1 / effective_before)
                - variance - variance_before
            )
        ) AS error,
        CASE WHEN change = 0 THEN 0 ELSE least(abs(change) / error, 1e6) END AS t,
        CASE
            WHEN effective_before IS NULL OR least(effective, effective_before) < 5 THEN NULL
            WHEN variance + variance_before = 0 THEN least(effective, effective_before) - 1
            ELSE least(
                effective_of_both - 1,
                pow(variance + variance_before, 2) / (
                    pow(variance, 2) / (effective - 1)
                    + pow(variance_before, 2) / (effective_before - 1)
                )
            )
        END AS df
    FROM (
        SELECT
            key,
            any_value(begins) AS begins,
            any_value(traces) AS traces,
            count(task.n) AS tasks,
            any_value(mean) AS mean,
            any_value(traces_before) AS traces_before,
            count(task.n_before) AS tasks_before,
            any_value(mean_before) AS mean_before,
            round(any_value(mean - mean_before), 12) AS change,
            pow(any_value(traces), 2) / sum(pow(task.n, 2)) AS effective,
            pow(any_value(traces_before), 2) / sum(pow(task.n_before, 2)) AS effective_before,
            4 / sum(pow(coalesce(task.n / traces, 0) + coalesce(task.n_before / traces_before, 0), 2))
                AS effective_of_both,
            (count(task.n) - 1) / count(task.n) * sum(shift * shift) AS variance,
            (count(task.n_before) - 1) / count(task.n_before) * sum(shift_before * shift_before)
                AS variance_before,
            (
                (effective - 1) * effective * variance
                + (effective_before - 1) * effective_before * variance_before
            ) / (effective + effective_before - 2) AS variance_of_all,
            (count(*) - 1) / count(*)
            * sum(pow(coalesce(shift, 0) - coalesce(shift_before, 0), 2)) AS variance_of_change
        FROM (
            SELECT
                *,
                (task.n * mean - task.score) / (traces - task.n) AS shift,
                (task.n_before * mean_before - task.score_before) / (traces_before - task.n_before)
                    AS shift_before
            FROM (
                SELECT
                    key,
                    number,
                    any_value(begins) AS begins,
                    sum(n)::BIGINT AS traces,
                    sum(n_before)::BIGINT AS traces_before,
                    sum(score) / sum(n) AS mean,
                    sum(score_before) / sum(n_before) AS mean_before,
                    unnest(list({
                        'n': n, 'score': score, 'n_before': n_before, 'score_before': score_before
                    })) AS task
                FROM (
                    SELECT
                        key,
                        number + later AS number,
                        any_value(begins) FILTER (later = 0) AS begins,
                        sum(n) FILTER (later = 0) AS n,
                        sum(score) FILTER (later = 0) AS score,
                        sum(n) FILTER (later > 0) AS n_before,
                        sum(score) FILTER (later > 0) AS score_before
                    FROM (
                        SELECT
                            keys AS key,
                            date_trunc(kp.period_or_day(period), kp.day_of(created_at))::DATE AS begins,
                            date_diff(kp.period_or_day(period), DATE '2000-01-03', begins) AS number,
                            hash(objective_hash) AS task,
                            count(*) AS n,
                            sum(score) AS score
                        FROM kp.scores
                        WHERE CASE
                            WHEN period IN ('day', 'week', 'month', 'quarter', 'year') THEN true
                            ELSE error('a period is day, week, month, quarter or year')
                        END
                        GROUP BY ALL
                    ), range(5) AS of_periods(later)
                    GROUP BY key, number + later, task
                )
                GROUP BY key, number
                HAVING count(n) > 0
            )
        )
        GROUP BY key, number
    )
)
ORDER BY key, begins;

COMMENT ON MACRO TABLE changes_by IS 'By how much did the mean score of the traces that are alike in these columns change, from the four periods before (day, week, month, quarter or year) to each period? low and high: a 95% interval for tasks drawn anew; p_value: how likely such a change is where the tasks alone differ, by chance; null below 5 effective tasks on either side.';
