-- Group: distribution
-- Example: FROM scores_by_day WHERE task_domain = 'code';
CREATE VIEW scores_by_day AS
SELECT
    day_of(created_at) AS day,
    task_domain,
    count(*) AS traces,
    avg(score) AS mean,
    quantile_cont(score, 0.5) AS median,
    avg(novelty) AS novelty,
    count(*) FILTER (meets_threshold) AS worth_sharing
FROM scores
GROUP BY ALL
ORDER BY ALL;

COMMENT ON VIEW scores_by_day IS 'How do scores and novelty go from day to day (UTC), by domain?';
