-- Group: distribution
-- Example: FROM means_by({'framework': framework, 'profile': profile});
-- Attempts at one task are alike, so that tasks are the units that were drawn, not traces. The
-- squares are of what a mean would change by without one of them, the jackknife's. The jackknife
-- takes a share of 0 or 1 for certain, so that overconfidence has the doubt of the success share: alike is
-- how success goes with confidence, pulled to 0 by four tasks of which nothing is known.
-- Without common table expressions, which DuckDB 1.4 does not find in macros of later versions.
CREATE MACRO means_by(keys) AS TABLE
SELECT
    of_key.key AS key,
    of_key.traces AS traces,
    tasks,
    of_key.mean AS mean,
    of_key.mean - score_margin AS low,
    of_key.mean + score_margin AS high,
    of_key.median AS median,
    of_key.novelty AS novelty,
    of_key.novelty - novelty_margin AS novelty_low,
    of_key.novelty + novelty_margin AS novelty_high,
    of_key.cache_filling AS cache_filling,
    of_key.success AS success,
    kp.share_low(of_key.success, successes_of, t) AS success_low,
    kp.share_high(of_key.success, successes_of, t) AS success_high,
    of_key.worth_sharing AS worth_sharing,
    of_key.share AS share,
    kp.share_low(of_key.share, sharing_of, t) AS share_low,
    kp.share_high(of_key.share, sharing_of, t) AS share_high,
    of_key.confidence AS confidence,
    of_key.overconfidence AS overconfidence,
    of_key.overconfidence
    - kp.of_both_sides(confidence_margin, success_high - of_key.success, alike)
        AS overconfidence_low,
    of_key.overconfidence
    + kp.of_both_sides(confidence_margin, of_key.success - success_low, alike)
        AS overconfidence_high,
    of_key.tools AS tools,
    of_key.single_thought AS single_thought,
    of_key.recovery_bonus AS recovery_bonus,
    of_key.low_diversity_penalty AS low_diversity_penalty
FROM (
    SELECT
        of_key,
        tasks,
        t,
        t * sqrt((tasks - 1) / tasks * score_squares) AS score_margin,
        t * sqrt((tasks - 1) / tasks * novelty_squares) AS novelty_margin,
        t * sqrt((tasks - 1) / tasks * confidence_squares) AS confidence_margin,
        (1 - 4 / tasks)
        * coalesce(products / nullif(sqrt(confidence_squares * success_squares), 0), 0) AS alike,
        kp.effective_traces(
            kp.intraclass_correlation(
                success_between, of_key.success, of_key.traces, tasks, squares
            ),
            of_key.traces, tasks, squares
        ) AS successes_of,
        kp.effective_traces(
            kp.intraclass_correlation(sharing_between, of_key.share, of_key.traces, tasks, squares),
            of_key.traces, tasks, squares
        ) AS sharing_of
    FROM (
        SELECT *, kp.student_t(of_key.traces * of_key.traces / squares - 1) AS t
        FROM (
            SELECT
                any_value(of_key) AS of_key,
                count(*) AS tasks,
                sum(n * n)::DOUBLE AS squares,
                sum(pow((n * of_key.mean - of_task.score) / (traces - n), 2)) AS score_squares,
                sum(pow((n * of_key.novelty - of_task.novelty) / (traces - n), 2))
                    AS novelty_squares,
                sum(pow((n * of_key.confidence - of_task.confidence) / (traces - n), 2))
                    AS confidence_squares,
                sum(pow((n * of_key.success - of_task.success) / (traces - n), 2))
                    AS success_squares,
                sum(
                    (n * of_key.confidence - of_task.confidence)
                    * (n * of_key.success - of_task.success)
                    / pow(traces - n, 2)
                ) AS products,
                sum(of_task.success * of_task.success / n) AS success_between,
                sum(sharing * sharing / n) AS sharing_between
            FROM (
                SELECT
                    keys AS key,
                    count(*) AS n,
                    sum(score) AS score,
                    sum(novelty) AS novelty,
                    count(*) FILTER (success) AS success,
                    count(*) FILTER (meets_threshold) AS sharing,
                    sum(confidence) AS confidence
                FROM kp.scores
                GROUP BY key, objective_hash
            ) AS of_task
            JOIN (
                SELECT
                    keys AS key,
                    count(*) AS traces,
                    avg(score) AS mean,
                    quantile_cont(score, 0.5) AS median,
                    avg(novelty) AS novelty,
                    count(*) FILTER (cache_filling) AS cache_filling,
                    count(*) FILTER (success) / count(*) AS success,
                    count(*) FILTER (meets_threshold) AS worth_sharing,
                    worth_sharing / count(*) AS share,
                    avg(confidence) AS confidence,
                    avg(confidence - success::INTEGER) AS overconfidence,
                    avg(n_tools) AS tools,
                    count(*) FILTER (single_thought) / count(*) AS single_thought,
                    count(*) FILTER (recovery_bonus) / count(*) AS recovery_bonus,
                    count(*) FILTER (low_diversity_penalty) / count(*) AS low_diversity_penalty
                FROM kp.scores
                GROUP BY key
            ) AS of_key ON of_task.key IS NOT DISTINCT FROM of_key.key
            GROUP BY of_key.key
        )
    )
)
ORDER BY ALL;

COMMENT ON MACRO TABLE means_by IS 'What are the means and shares of the traces that are alike in these columns, and how far can they be trusted? low and high: 95% intervals for tasks drawn anew under the same history, null below 5 effective tasks.';
