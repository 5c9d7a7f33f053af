-- Group: like with like
-- Example: FROM paired_agents('patchwork-a', 'patchwork-b');
CREATE MACRO paired_agents(a, b) AS TABLE
FROM kp.differences_by(agent_id, a, b);

COMMENT ON MACRO TABLE paired_agents IS 'On the tasks that two agents both tried, how does b differ from a? As differences_by; of many pairs that are compared, one in twenty differs by chance.';
