-- Group: like with like
-- Example: FROM differences_from_others(agent_id) WHERE tasks >= 5;
-- As in differences_by, each task counts once, and so does each value on it. The tasks of one value go
-- before their means are unnested, as they may be a million. What the others did is a sum without
-- one's own, whose last digits tell nothing: a correlation is made of 12 decimals.
CREATE MACRO differences_from_others(unit) AS TABLE
SELECT
    task_domain,
    own AS unit,
    traces,
    tasks,
    score,
    score_of_others,
    score_difference,
    score_difference - margin AS score_low,
    score_difference + margin AS score_high,
    success,
    success_of_others,
    success_difference,
    success_difference - kp.of_both_sides(below, above_others, alike) AS success_low,
    success_difference + kp.of_both_sides(above, below_others, alike) AS success_high
FROM (
    SELECT
        *,
        t * deviation / sqrt(tasks) AS margin,
        success - kp.share_low(success, tasks, t) AS below,
        kp.share_high(success, tasks, t) - success AS above,
        success_of_others - kp.share_low(success_of_others, tasks, t) AS below_others,
        kp.share_high(success_of_others, tasks, t) - success_of_others AS above_others
    FROM (
        SELECT
            task_domain,
            own,
            sum(traces)::BIGINT AS traces,
            count(*) AS tasks,
            kp.student_t(count(*) - 1) AS t,
            avg(score) AS score,
            avg(score_of_others) AS score_of_others,
            avg(score - score_of_others) AS score_difference,
            stddev_samp(score - score_of_others) AS deviation,
            avg(success) AS success,
            avg(success_of_others) AS success_of_others,
            avg(success - success_of_others) AS success_difference,
            coalesce(nullif(corr(success, round(success_of_others, 12)), 'nan'::DOUBLE), 0) AS alike
        FROM (
            SELECT
                task_domain,
                of_value.own AS own,
                of_value.traces AS traces,
                of_value.score AS score,
                of_value.success AS success,
                (score_of_all - of_value.score) / (n - 1) AS score_of_others,
                (success_of_all - of_value.success) / (n - 1) AS success_of_others
            FROM (
                SELECT task_domain, n, score_of_all, success_of_all, unnest(of_values) AS of_value
                FROM (
                    SELECT
                        task_domain,
                        count(*) AS n,
                        sum(score) AS score_of_all,
                        sum(success) AS success_of_all,
                        list({
                            'own': own, 'traces': traces, 'score': score, 'success': success
                        }) AS of_values
                    FROM (
                        SELECT
                            task_domain,
                            hash(objective_hash) AS task,
                            unit AS own,
                            count(*) AS traces,
                            avg(score) AS score,
                            avg(success::INTEGER) AS success
                        FROM kp.scores
                        WHERE unit IS NOT NULL
                        GROUP BY ALL
                    )
                    GROUP BY task_domain, task
                    HAVING count(*) > 1
                )
            )
        )
        GROUP BY task_domain, own
    )
)
ORDER BY task_domain, own;

COMMENT ON MACRO TABLE differences_from_others IS 'On the tasks that others tried, too, by how much does each value of a column (agent_id, framework) differ from the others of its domain in score and in success? A task counts once, each value on it by the mean of its attempts, and the others by the mean of theirs; null is nobody. low and high: 95% intervals, null below 5 tasks; of many values, one in twenty differs by chance. No ranking: each has its own tasks and others; differences_by compares two on the same ones.';
