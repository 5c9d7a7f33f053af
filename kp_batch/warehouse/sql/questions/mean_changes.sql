-- Group: like with like
-- Example: FROM mean_changes('week') ORDER BY begins DESC LIMIT 10;
-- Of the domains on both sides the means are weighed by the shares among these, each by the mean of
-- both sides, so that mix and within are the whole of their change.
CREATE MACRO mean_changes(period) AS TABLE
SELECT
    begins,
    traces,
    tasks,
    mean,
    traces_before,
    tasks_before,
    mean_before,
    change,
    low,
    high,
    mix,
    within,
    mean - mean_of_both AS came,
    mean_of_both_before - mean_before AS went
FROM kp.changes_by(1, period)
LEFT JOIN (
    SELECT
        begins,
        sum((share - share_before) * (mean + mean_before) / 2) AS mix,
        sum((share + share_before) / 2 * (mean - mean_before)) AS within,
        sum(share * mean) AS mean_of_both,
        sum(share_before * mean_before) AS mean_of_both_before
    FROM (
        SELECT
            begins,
            mean,
            mean_before,
            traces / sum(traces) OVER (PARTITION BY begins) AS share,
            traces_before / sum(traces_before) OVER (PARTITION BY begins) AS share_before
        FROM kp.changes_by(task_domain, period)
        WHERE traces_before IS NOT NULL
    )
    GROUP BY begins
) AS parts USING (begins)
ORDER BY begins;

COMMENT ON MACRO TABLE mean_changes IS 'Why did the mean score change, from the four periods before to each period? By what the mix of domains did, what happened within the domains that are on both sides, what came with domains that entered, and what went with those that left: the four sum to the change; null where no domain is on both sides.';
