-- Group: distribution
-- Example: FROM score_distribution;
CREATE VIEW score_distribution AS
SELECT
    task_domain,
    count(*) AS traces,
    score_mean(score) AS mean,
    stddev_samp(score) AS stddev,
    CASE WHEN min(score) < max(score) THEN skewness(score) END AS skewness,
    min(score) AS min,
    score_quantiles(score)[1] AS p5,
    score_quantiles(score)[2] AS p25,
    score_quantiles(score)[3] AS p50,
    score_quantiles(score)[4] AS p75,
    score_quantiles(score)[5] AS p95,
    max(score) AS max
FROM kp.scores
GROUP BY task_domain
ORDER BY task_domain;

COMMENT ON VIEW score_distribution IS 'How are the scores of each domain distributed? A row is a domain. stddev is null for a single score; skewness is null below three scores and if all are equal.';
