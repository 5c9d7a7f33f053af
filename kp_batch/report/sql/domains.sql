-- The distribution of the scores in each domain, and in all domains together (null).
SELECT
    task_domain AS domain,
    count(*) AS traces,
    count(*) FILTER (meets_threshold) AS worth_sharing,
    score_mean(score) AS mean,
    score_quantiles(score)[1] AS p5,
    score_quantiles(score)[2] AS p25,
    score_quantiles(score)[3] AS p50,
    score_quantiles(score)[4] AS p75,
    score_quantiles(score)[5] AS p95
FROM scores
GROUP BY GROUPING SETS ((task_domain), ())
HAVING count(*) > 0
ORDER BY
    domain IS NOT NULL,
    domain IS NOT DISTINCT FROM getvariable('others'),
    traces DESC,
    domain;
