-- Group: like with like
-- Example: FROM mean_changes('week') ORDER BY begins DESC LIMIT 10;
-- Of the domains on both sides the means are weighed by the shares among these, each by the mean of
-- both sides, so that mix and within are the whole of their change. What came and what went shift a
-- mean by as much as they are off these: by nothing at all where no domain did.
CREATE MACRO mean_changes(period) AS TABLE
SELECT
    changes.* EXCLUDE (key),
    mix,
    within,
    came,
    went
FROM kp.changes_by(1, period) AS changes
LEFT JOIN (
    SELECT
        any_value(begins) AS begins,
        sum((n / of_both.n - n_before / of_both.n_before) * (score / n + score_before / n_before) / 2)
            AS mix,
        sum((n / of_both.n + n_before / of_both.n_before) / 2 * (score / n - score_before / n_before))
            AS within,
        sum(CASE WHEN n_before IS NULL THEN score - n * of_both.mean ELSE 0 END) / sum(n) AS came,
        sum(CASE WHEN n IS NULL THEN n_before * of_both.mean_before - score_before ELSE 0 END)
            / sum(n_before) AS went
    FROM (
        SELECT
            *,
            {
                'n': sum(n) FILTER (n_before > 0) OVER of_period,
                'n_before': sum(n_before) FILTER (n > 0) OVER of_period,
                'mean': sum(score) FILTER (n_before > 0) OVER of_period
                    / sum(n) FILTER (n_before > 0) OVER of_period,
                'mean_before': sum(score_before) FILTER (n > 0) OVER of_period
                    / sum(n_before) FILTER (n > 0) OVER of_period
            } AS of_both
        FROM (
            SELECT
                number + later AS number,
                any_value(begins) FILTER (later = 0) AS begins,
                sum(n) FILTER (later = 0) AS n,
                sum(score) FILTER (later = 0) AS score,
                sum(n) FILTER (later > 0) AS n_before,
                sum(score) FILTER (later > 0) AS score_before
            FROM (
                SELECT
                    task_domain,
                    date_trunc(kp.period_or_day(period), kp.day_of(created_at))::DATE AS begins,
                    date_diff(kp.period_or_day(period), DATE '2000-01-03', begins) AS number,
                    count(*) AS n,
                    sum(score) AS score
                FROM kp.scores
                GROUP BY ALL
            ), range(5) AS of_periods(later)
            GROUP BY task_domain, number + later
        )
        WINDOW of_period AS (PARTITION BY number)
    )
    WHERE of_both.n IS NOT NULL
    GROUP BY number
) AS parts USING (begins)
ORDER BY begins;

COMMENT ON MACRO TABLE mean_changes IS 'Why did the mean score change, from the four periods before to each period? As changes_by, and by what the mix of domains did, what happened within the domains that are on both sides, what came with domains that entered, and what went with those that left: the four sum to the change; null where no domain is on both sides.';
