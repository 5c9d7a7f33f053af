-- The means and shares of groups of traces, with the intervals of the catalog: of their sums, in `sums`. As
-- the question means_by has them.
CREATE OR REPLACE TEMP TABLE means AS
SELECT
    "by",
    domain,
    start,
    bin,
    unit,
    traces,
    tasks,
    effective_tasks,
    mean,
    mean - score_margin AS low,
    mean + score_margin AS high,
    novelty,
    novelty - novelty_margin AS novelty_low,
    novelty + novelty_margin AS novelty_high,
    cache_warming_up,
    success,
    share_low(success, successes_of, t) AS success_low,
    share_high(success, successes_of, t) AS success_high,
    worth_sharing,
    share,
    share_low(share, sharing_of, t) AS share_low,
    share_high(share, sharing_of, t) AS share_high,
    confidence,
    overconfidence,
    overconfidence - of_both_sides(confidence_margin, success_high - success, alike)
        AS overconfidence_low,
    overconfidence + of_both_sides(confidence_margin, success - success_low, alike)
        AS overconfidence_high,
    tools,
    low_diversity_penalty
FROM (
    SELECT
        *,
        t * sqrt((tasks - 1) / tasks * score_squares) AS score_margin,
        t * sqrt((tasks - 1) / tasks * novelty_squares) AS novelty_margin,
        t * sqrt((tasks - 1) / tasks * confidence_squares) AS confidence_margin,
        (1 - 4 / tasks)
        * coalesce(products / nullif(sqrt(confidence_squares * success_squares), 0), 0) AS alike,
        effective_traces(
            intraclass_correlation(success_between, success, traces, tasks, squares),
            traces, tasks, squares
        ) AS successes_of,
        effective_traces(
            intraclass_correlation(meets_threshold_between, share, traces, tasks, squares),
            traces, tasks, squares
        ) AS sharing_of
    FROM (
        SELECT
            * REPLACE (
                novelty / traces AS novelty,
                confidence / traces AS confidence,
                success / traces AS success,
                tools / traces AS tools
            ),
            score / traces AS mean,
            warming_up::BIGINT AS cache_warming_up,
            meets_threshold::BIGINT AS worth_sharing,
            meets_threshold / traces AS share,
            sums.confidence / traces - sums.success / traces AS overconfidence,
            penalty / traces AS low_diversity_penalty,
            traces * traces / squares AS effective_tasks,
            student_t(effective_tasks - 1) AS t
        FROM sums
    ) AS sums
);
