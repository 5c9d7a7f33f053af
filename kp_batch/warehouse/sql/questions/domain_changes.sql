-- Group: like with like
-- Example: FROM domain_changes('week') ORDER BY p_value LIMIT 10;
-- Holm's over the domains of one period alone, so that what came later changes no finding.
CREATE MACRO domain_changes(period) AS TABLE
SELECT
    key AS task_domain,
    * EXCLUDE (key, p_value, of_period, place, adjusted),
    adjusted AS p_value,
    adjusted < 0.05 AS moved
FROM (
    SELECT
        *,
        CASE WHEN p_value IS NOT NULL THEN max(least(1, p_value * (of_period - place + 1))) OVER (
            PARTITION BY begins ORDER BY place
        ) END AS adjusted
    FROM (
        SELECT
            *,
            count(p_value) OVER (PARTITION BY begins) AS of_period,
            row_number() OVER (PARTITION BY begins ORDER BY p_value NULLS LAST, key) AS place
        FROM kp.changes_by(task_domain, period)
    )
)
ORDER BY begins, task_domain;

COMMENT ON MACRO TABLE domain_changes IS 'Which domains moved by more than chance, from the four periods before to each period? As changes_by, with p_value by Holm over the domains of a period: in 95 of 100 periods no domain is called so by chance.';
