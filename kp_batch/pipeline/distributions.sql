-- How the scores of a run are distributed, by domain, and (null) over all domains.
-- Given: the table scores, the catalog's macros, and the parameters run_id and threshold.
SELECT
    $run_id AS run_id,
    task_domain,
    count(*) AS traces,
    count(*) FILTER (score >= $threshold) AS worth_sharing,
    score_mean(score) AS mean,
    score_quantiles(score)[1] AS p5,
    score_quantiles(score)[2] AS p25,
    score_quantiles(score)[3] AS p50,
    score_quantiles(score)[4] AS p75,
    score_quantiles(score)[5] AS p95,
    score_bins(score) AS bins
FROM scores
GROUP BY GROUPING SETS ((), (task_domain))
HAVING count(*) > 0
ORDER BY task_domain NULLS FIRST;
