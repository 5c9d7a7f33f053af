-- Group: like with like
-- Example: FROM paired_groups('{"agent_id":"patchwork-a"}', '{"agent_id":"patchwork-b"}');
CREATE MACRO paired_groups(a, b) AS TABLE
FROM kp.differences_by(cache_group, a, b);

COMMENT ON MACRO TABLE paired_groups IS 'On the tasks that two groups both tried, how does b differ from a? As differences_by.';
