-- The number of scores in each of twenty bins, by domain.
SELECT task_domain AS domain, low, high, traces
FROM here.score_histogram(20)
ORDER BY ALL;
