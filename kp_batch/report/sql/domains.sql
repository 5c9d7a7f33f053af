-- The distribution of the scores in each domain, and in all domains together (null).
SELECT
    domain,
    count(*) AS traces,
    count(*) FILTER (meets_threshold) AS worth_sharing,
    avg(score) AS mean,
    quantile_cont(score, 0.05) AS p5,
    quantile_cont(score, 0.25) AS p25,
    quantile_cont(score, 0.50) AS p50,
    quantile_cont(score, 0.75) AS p75,
    quantile_cont(score, 0.95) AS p95
FROM scores
JOIN labels USING (task_domain)
GROUP BY GROUPING SETS ((domain), ())
HAVING count(*) > 0
ORDER BY domain IS NOT NULL, any_value(apart) DESC, traces DESC, domain;
