CREATE VIEW score_distribution AS
SELECT
    task_domain,
    count(*) AS traces,
    avg(score) AS mean,
    stddev_samp(score) AS deviation,
    skewness(score) AS skewness,
    min(score) AS least,
    quantile_cont(score, 0.05) AS p5,
    quantile_cont(score, 0.25) AS p25,
    quantile_cont(score, 0.50) AS p50,
    quantile_cont(score, 0.75) AS p75,
    quantile_cont(score, 0.95) AS p95,
    max(score) AS greatest
FROM scores
GROUP BY task_domain
ORDER BY task_domain;

COMMENT ON VIEW score_distribution IS 'How are scores distributed in each domain? Moments and quantiles.';
