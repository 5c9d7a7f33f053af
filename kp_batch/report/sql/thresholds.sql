-- The number and the share of traces that reach each threshold from 0 to 1, by domain.
SELECT task_domain AS domain, threshold, reaching, share
FROM here.threshold_curve(40)
ORDER BY ALL;
