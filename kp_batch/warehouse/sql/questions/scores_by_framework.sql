-- Group: distribution
-- Example: FROM scores_by_framework WHERE tasks >= 10;
CREATE VIEW scores_by_framework AS
SELECT
    key.task_domain AS task_domain,
    key.framework AS framework,
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
FROM here.means_by({'task_domain': task_domain, 'framework': framework})
ORDER BY task_domain, framework;

COMMENT ON VIEW scores_by_framework IS 'How do the frameworks differ within a domain? As scores_by_agent; paired_frameworks compares two on the same tasks.';
