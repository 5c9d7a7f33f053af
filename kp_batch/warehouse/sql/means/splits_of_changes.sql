-- For domains on both sides, shares and means are weighted by the average of both sides, so that mix and
-- within add up to the whole change of these domains. Domains that entered or exited shift a mean by their
-- distance from these: by nothing if there are none.
CREATE MACRO splits_of_changes(sums) AS TABLE
WITH domains AS (
    SELECT
        number + later AS number,
        any_value(begins) FILTER (later = 0) AS begins,
        sum(traces) FILTER (later = 0) AS n,
        sum(total) FILTER (later = 0) AS score,
        sum(traces) FILTER (later > 0) AS n_before,
        sum(total) FILTER (later > 0) AS score_before
    FROM query_table(sums), range(5) AS of_periods(later)
    GROUP BY task_domain, number + later
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
)
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
GROUP BY number;

COMMENT ON MACRO TABLE splits_of_changes IS 'How do the mix of domains, and the change in each domain, contribute to the change of the mean of all? The table has the traces of each domain in each period, and their total score. mean_changes and the report use this one.';
