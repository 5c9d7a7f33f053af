CREATE MACRO task_parts(keys, condition) AS TABLE
SELECT
    hash(*COLUMNS(kp.names(keys))) AS key,
    hash(objective_hash) AS task,
    avg(COLUMNS('from_.*')),
    avg(COLUMNS('weight_of_.*')),
    avg(COLUMNS(['complexity', 'novelty', 'tool_diversity', 'outcome_confidence']))
FROM kp.trace_measures
WHERE condition
GROUP BY ALL;

COMMENT ON MACRO TABLE task_parts IS 'What are the parts of the score, the weights and the dimensions at each task, as means of its attempts? Keys and tasks are hashes, as in task_sums.';
