-- The distribution of the scores in each domain, and in all domains together (null).
SELECT
    domain,
    count(*) AS traces,
    count(*) FILTER (meets_threshold) AS worth_sharing,
    score_mean(score) AS mean,
    score_quantiles(score)[1] AS p5,
    score_quantiles(score)[2] AS p25,
    score_quantiles(score)[3] AS p50,
    score_quantiles(score)[4] AS p75,
    score_quantiles(score)[5] AS p95
FROM scores
JOIN labels USING (task_domain)
GROUP BY GROUPING SETS ((domain), ())
HAVING count(*) > 0
ORDER BY domain IS NOT NULL, any_value(apart) DESC, traces DESC, domain;
