-- By how much the mean score of each domain changed, and which moved by more than chance, by Holm over the
-- domains of a period: of those with labels of their own, within the span of all domains.
-- Given: changes; step, a text.
WITH ranked AS (
    SELECT
        *,
        count(p_value) OVER (PARTITION BY begins) AS of_period,
        row_number() OVER (PARTITION BY begins ORDER BY p_value NULLS LAST, task_domain) AS place
    FROM changes
    WHERE task_domain IS NOT NULL
),
adjusted AS (
    SELECT
        * EXCLUDE (of_period, place) REPLACE (
            CASE WHEN p_value IS NOT NULL THEN max(least(1, p_value * (of_period - place + 1))) OVER (
                PARTITION BY begins ORDER BY place
            ) END AS p_value
        )
    FROM ranked
)
SELECT
    labels.domain AS domain,
    changes.* EXCLUDE (task_domain),
    p_value < 0.05 AS moved,
    warming_up,
    warming_up_before,
    coalesce(changes.begins + $step::INTERVAL <= getvariable('ended')::TIMESTAMP, true) AS is_over
FROM adjusted AS changes
JOIN labels USING (task_domain)
JOIN spans
    ON spans.domain = getvariable('all_domains')
    AND changes.begins + $step::INTERVAL > first_day AND changes.begins <= last_day
JOIN warming_up ON (warming_up.domain, warming_up.begins) = (labels.domain, changes.begins)
WHERE apart
ORDER BY labels.domain, changes.begins;
