-- How many traces reach each threshold from 0 to 1.
SELECT
    domain,
    threshold,
    sum(reaching)::BIGINT AS reaching,
    sum(reaching) / sum(traces) AS share
FROM threshold_curve(40)
JOIN labels USING (task_domain)
JOIN (SELECT task_domain, traces FROM score_distribution) USING (task_domain)
GROUP BY ALL
ORDER BY ALL;
