-- How many scores fall into each of twenty bins.
SELECT domain, low, high, sum(traces)::BIGINT AS traces
FROM score_histogram(20)
JOIN labels USING (task_domain)
GROUP BY ALL
ORDER BY ALL;
