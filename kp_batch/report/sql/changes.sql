-- By how much the mean score of all domains together changed to each period from the four before, and why;
-- within the span. Of the domains on both sides the means are weighed by the shares among these, each by the
-- mean of both sides, so that mix and within are the whole of their change; what entered and what exited shift a mean
-- by as much as they are off these. Given: changed, whose rows with a domain are its sums; step, a text.
WITH of_domains AS (
    SELECT
        number + later AS number,
        any_value(begins) FILTER (later = 0) AS begins,
        sum(traces) FILTER (later = 0) AS n,
        sum(score) FILTER (later = 0) AS score,
        sum(traces) FILTER (later > 0) AS n_before,
        sum(score) FILTER (later > 0) AS score_before
    FROM changed, range(5) AS of_periods(later)
    WHERE task_domain IS NOT NULL
    GROUP BY task_domain, number + later
),
sides AS (
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
    FROM of_domains
    WINDOW of_period AS (PARTITION BY number)
),
parts AS (
    SELECT
        any_value(begins) AS begins,
        sum((n / of_both.n - n_before / of_both.n_before) * (score / n + score_before / n_before) / 2)
            AS mix,
        sum((n / of_both.n + n_before / of_both.n_before) / 2 * (score / n - score_before / n_before))
            AS within,
        sum(CASE WHEN n_before IS NULL THEN score - n * of_both.mean ELSE 0 END) / sum(n) AS entered,
        sum(CASE WHEN n IS NULL THEN n_before * of_both.mean_before - score_before ELSE 0 END)
            / sum(n_before) AS exited
    FROM sides
    WHERE of_both.n IS NOT NULL
    GROUP BY number
)
SELECT
    spans.domain,
    changes.* EXCLUDE (task_domain),
    mix,
    within,
    entered,
    exited,
    warming_up,
    warming_up_before,
    coalesce(begins + $step::INTERVAL <= getvariable('ended')::TIMESTAMP, true) AS is_over
FROM changes
LEFT JOIN parts USING (begins)
JOIN spans
    ON spans.domain = getvariable('all_domains')
    AND begins + $step::INTERVAL > first_day AND begins <= last_day
JOIN warming_up USING (domain, begins)
WHERE task_domain IS NULL
ORDER BY begins;
