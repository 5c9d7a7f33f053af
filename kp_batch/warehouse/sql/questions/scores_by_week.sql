-- Group: distribution
-- Example: FROM scores_by_week WHERE worth_sharing > 0;
CREATE VIEW scores_by_week AS
SELECT
    key.week AS week,
    key.task_domain AS task_domain,
    * EXCLUDE (
        key, confidence, overconfidence, overconfidence_low, overconfidence_high,
        tools, single_thought, recovery_bonus, low_diversity_penalty
    )
FROM kp.means_by({
    'week': date_trunc('week', day_of(created_at))::DATE,
    'task_domain': task_domain
})
ORDER BY week, task_domain;

COMMENT ON VIEW scores_by_week IS 'How do scores and novelty go from week to week (UTC, from Monday on), by domain? As scores_by_day.';
