-- Group: distribution
-- Example: FROM scores_by_domain;
CREATE VIEW scores_by_domain AS
SELECT
    key.task_domain AS task_domain,
    traces,
    tasks,
    mean,
    low,
    high,
    novelty,
    novelty_low,
    novelty_high,
    cache_filling,
    success,
    success_low,
    success_high,
    worth_sharing,
    share,
    share_low,
    share_high,
    tools,
    single_thought,
    recovery_bonus,
    low_diversity_penalty
FROM here.means_by({'task_domain': task_domain})
ORDER BY task_domain;

COMMENT ON VIEW scores_by_domain IS 'How do the domains differ, and how far can that be trusted? Doubt as in means_by.';
