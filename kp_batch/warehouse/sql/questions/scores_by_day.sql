-- Group: distribution
-- Example: FROM scores_by_day WHERE task_domain = 'code';
CREATE VIEW scores_by_day AS
SELECT
    key.day AS day,
    key.task_domain AS task_domain,
    * EXCLUDE (
        key, confidence, overconfidence, overconfidence_low, overconfidence_high,
        tools, single_thought, recovery_bonus, low_diversity_penalty
    )
FROM kp.means_by({'day': day_of(created_at), 'task_domain': task_domain})
ORDER BY day, task_domain;

COMMENT ON VIEW scores_by_day IS 'How do scores and novelty go from day to day (UTC), by domain? Doubt as in means_by; cache_filling: of how many the cache was still filling, so that they look novel.';
