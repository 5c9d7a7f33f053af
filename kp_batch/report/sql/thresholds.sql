-- The number and the share of traces that reach each threshold from 0 to 1, by domain.
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
