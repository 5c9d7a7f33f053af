CREATE VIEW scores_by_day AS
SELECT
    (created_at AT TIME ZONE 'UTC')::DATE AS day,
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
