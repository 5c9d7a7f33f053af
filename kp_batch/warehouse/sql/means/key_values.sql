CREATE MACRO key_values(keys, condition) AS TABLE
SELECT DISTINCT COLUMNS(kp.names(keys)), hash(*COLUMNS(kp.names(keys))) AS key
FROM kp.trace_measures
WHERE condition;

COMMENT ON MACRO TABLE key_values IS 'Which combinations of values do some columns have, and with which hash in task_sums?';
