CREATE MACRO key_values(keys, condition) AS TABLE
SELECT DISTINCT COLUMNS(kp.names(keys)), hash(*COLUMNS(kp.names(keys))) AS key
FROM kp.trace_measures
WHERE condition;

COMMENT ON MACRO TABLE key_values IS 'Which values do some columns have together, and which hash does task_sums give them?';
