-- Group: distribution
-- Example: FROM scores_by_agent WHERE tasks >= 10;
CREATE VIEW scores_by_agent AS
SELECT
    key.task_domain AS task_domain,
    key.agent_id AS agent_id,
    * EXCLUDE (key, median, confidence, overconfidence, overconfidence_low, overconfidence_high)
FROM kp.means_by({'task_domain': task_domain, 'agent_id': agent_id})
ORDER BY task_domain, agent_id;

COMMENT ON VIEW scores_by_agent IS 'How do the agents differ within a domain? Beside the score success, tools, and the share that each override applies to: what ranks them by score may be these. Null: the traces that name none. paired_agents compares two on the same tasks.';
