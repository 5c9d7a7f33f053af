-- Group: means
-- Example: FROM differences_from_others('agent_id', ['score']) WHERE tasks >= 5;
CREATE MACRO differences_from_others(
    unit,
    measures := ['score', 'novelty', 'success', 'share_at_threshold'],
    condition := true
) AS TABLE
FROM kp.unit_differences('task_domain', unit, measures, condition)
ORDER BY task_domain, COLUMNS([unit]), list_position(kp.names(measures), measure);

COMMENT ON MACRO TABLE differences_from_others IS 'By how much does each value of a column differ from the others of its domain, on the tasks that others also attempted? A row is a measure of a value in a domain. Each task counts once, with the mean of the value''s attempts and the mean of the others'' means. Traces without a value are left out. low, high, parts: as in differences_by. By chance alone, one interval in twenty excludes 0. This does not rank values, because each has other tasks and other opponents.';
