-- The number of scores in each of twenty bins, by domain.
SELECT domain, low, high, sum(traces)::BIGINT AS traces
FROM score_histogram(20)
JOIN labels USING (task_domain)
GROUP BY ALL
ORDER BY ALL;
