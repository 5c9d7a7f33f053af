-- Group: distribution
-- Example: FROM scores_by_group ORDER BY novelty;
CREATE VIEW scores_by_group AS
SELECT
    key.cache_group AS cache_group,
    * EXCLUDE (key, median, confidence, overconfidence, overconfidence_low, overconfidence_high)
FROM kp.means_by({'cache_group': cache_group})
ORDER BY cache_group;

COMMENT ON VIEW scores_by_group IS 'How do the traces differ that share a cache? The group as JSON of what they are equal in; null: all share one. Doubt as in means_by.';
