-- Group: distribution
-- Example: FROM scores_by_week WHERE worth_sharing > 0;
CREATE VIEW scores_by_week AS
SELECT
    date_trunc('week', day_of(created_at))::DATE AS week,
    task_domain,
    count(*) AS traces,
    avg(score) AS mean,
    quantile_cont(score, 0.5) AS median,
    avg(novelty) AS novelty,
    count(*) FILTER (meets_threshold) AS worth_sharing
FROM scores
GROUP BY ALL
ORDER BY ALL;

COMMENT ON VIEW scores_by_week IS 'How do scores and novelty go from week to week (UTC, from Monday on), by domain?';
