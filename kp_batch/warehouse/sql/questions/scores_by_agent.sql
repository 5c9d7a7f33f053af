-- Group: distribution
-- Example: FROM scores_by_agent WHERE tasks >= 10;
CREATE VIEW scores_by_agent AS
SELECT
    key.task_domain AS task_domain,
    key.agent_id AS agent_id,
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
FROM here.means_by({'task_domain': task_domain, 'agent_id': agent_id})
ORDER BY task_domain, agent_id;

COMMENT ON VIEW scores_by_agent IS 'How do the agents differ within a domain? Beside the score success, tools, and the share that each override applies to: what ranks them by score may be these. Null: the traces that name none. paired_agents compares two on the same tasks.';
