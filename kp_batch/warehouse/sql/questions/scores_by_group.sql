-- Group: distribution
-- Example: FROM scores_by_group ORDER BY novelty;
CREATE VIEW scores_by_group AS
SELECT
    cache_group,
    count(*) AS traces,
    avg(score) AS mean,
    count(*) FILTER (meets_threshold) AS worth_sharing,
    avg(novelty) AS novelty
FROM scores
GROUP BY cache_group
ORDER BY cache_group;

COMMENT ON VIEW scores_by_group IS 'How do the traces differ that share a cache? The group as JSON of what they are equal in; null: all share one.';
