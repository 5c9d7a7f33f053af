-- The traces outside of each scope's span, by month, or by year if the archive is long.
SELECT
    domain,
    left(day::VARCHAR, if(others_by = 'year', 4, 7)) AS time,
    sum(traces)::BIGINT AS traces,
    sum(score) / sum(traces) AS mean
FROM scores_by_day
JOIN spans USING (domain)
WHERE day NOT BETWEEN first_day AND last_day
GROUP BY ALL
ORDER BY ALL;
