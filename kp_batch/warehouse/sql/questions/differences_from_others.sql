-- Group: means
-- Example: FROM differences_from_others('agent_id', ['score']) WHERE tasks >= 5;
CREATE MACRO differences_from_others(
    unit,
    measures := ['score', 'novelty', 'success', 'share_at_threshold'],
    condition := true
) AS TABLE
FROM kp.unit_differences('task_domain', unit, measures, condition)
ORDER BY task_domain, COLUMNS([unit]), list_position(kp.names(measures), measure);

COMMENT ON MACRO TABLE differences_from_others IS 'On the tasks that others tried, too, by how much does each value of a column (agent_id, framework) differ from the others of its domain? A task counts once, each value on it by the mean of its attempts, and the others by the mean of theirs. Traces without a value are left out. parts, low and high: as in differences_by; of many values, one in twenty differs by chance. No ranking: each has its own tasks and others.';
