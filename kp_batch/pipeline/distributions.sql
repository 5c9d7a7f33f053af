-- Computes the distribution of a run's scores in each domain of one part of the domains. If part is null, it
-- computes one distribution over all domains.
-- Given: the view scores, the catalog's macros, and the parameters run_id, threshold, part (from 0)
-- and parts.
SELECT
    $run_id AS run_id,
    CASE WHEN $part IS NOT NULL THEN task_domain END AS task_domain,
    count(*) AS traces,
    count(*) FILTER (score >= $threshold) AS at_threshold,
    score_mean(score) AS mean,
    score_quantiles(score)[1] AS p5,
    score_quantiles(score)[2] AS p25,
    score_quantiles(score)[3] AS p50,
    score_quantiles(score)[4] AS p75,
    score_quantiles(score)[5] AS p95,
    score_bins(score) AS bins,
    count(DISTINCT task_domain) AS domains
FROM scores
-- If there is only one part, no domain is hashed: hashing takes longer than all quantiles.
WHERE $part IS NULL OR $parts = 1 OR hash(task_domain) % $parts = $part
GROUP BY 2
HAVING count(*) > 0;
