-- Group: means
-- Example: FROM mean_changes('week') ORDER BY begins DESC LIMIT 10;
-- Of the domains on both sides the means are weighed by the shares among these, each by the mean of
-- both sides, so that mix and within are the whole of their change. What entered and what exited shift a
-- mean by as much as they are off these: by nothing at all where no domain did.
CREATE MACRO mean_changes(period, condition := true) AS TABLE
WITH sums AS (
    SELECT task_domain, COLUMNS([period]) AS begins, count(*) AS n, sum(score) AS score
    FROM kp.trace_measures
    WHERE condition
    GROUP BY ALL
),
domains AS (
    SELECT
        kp.number_of_period(period, begins) + later AS number,
        any_value(begins) FILTER (later = 0) AS begins,
        sum(n) FILTER (later = 0) AS n,
        sum(score) FILTER (later = 0) AS score,
        sum(n) FILTER (later > 0) AS n_before,
        sum(score) FILTER (later > 0) AS score_before
    FROM sums, range(5) AS of_periods(later)
    GROUP BY task_domain, number
),
on_both_sides AS (
    SELECT
        *,
        sum(n) FILTER (n_before > 0) OVER of_period AS of_both,
        sum(n_before) FILTER (n > 0) OVER of_period AS of_both_before,
        sum(score) FILTER (n_before > 0) OVER of_period / of_both AS mean_of_both,
        sum(score_before) FILTER (n > 0) OVER of_period / of_both_before AS mean_of_both_before
    FROM domains
    WINDOW of_period AS (PARTITION BY number)
),
splits AS (
    SELECT
        any_value(begins) AS begins,
        sum((n / of_both - n_before / of_both_before) * (score / n + score_before / n_before) / 2)
            AS mix,
        sum((n / of_both + n_before / of_both_before) / 2 * (score / n - score_before / n_before))
            AS within,
        sum(CASE WHEN n_before IS NULL THEN score - n * mean_of_both ELSE 0 END) / sum(n) AS entered,
        sum(CASE WHEN n IS NULL THEN n_before * mean_of_both_before - score_before ELSE 0 END)
            / sum(n_before) AS exited
    FROM on_both_sides
    WHERE of_both IS NOT NULL
    GROUP BY number
)
SELECT changes.* EXCLUDE (everything, measure, adjusted_p_value), mix, within, entered, exited
FROM kp.changes_by('everything', period, ['score'], condition) AS changes
LEFT JOIN splits USING (begins)
ORDER BY begins;

COMMENT ON MACRO TABLE mean_changes IS 'Why did the mean score of all change, from the four periods before to each period? As changes_by; and by what the mix of domains did, what happened within the domains that are on both sides, what the domains that entered brought, and what those that exited took: the four sum to the change; null where no domain is on both sides.';
