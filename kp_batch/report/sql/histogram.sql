-- The number of scores in each of twenty bins.
SELECT
    task_domain AS domain,
    bin_of(score, 20) / 20 AS low,
    low + 0.05 AS high,
    count(*) AS traces
FROM scoped
GROUP BY ALL
ORDER BY ALL;
