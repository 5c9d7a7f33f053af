CREATE VIEW clock_ties AS
SELECT created_at, count(*) AS traces, list(trace_id ORDER BY trace_id) AS trace_ids
FROM scores
GROUP BY created_at
HAVING count(*) > 1
ORDER BY traces DESC, created_at;

COMMENT ON VIEW clock_ties IS 'Which traces bear the very same time, so that their ids alone decide which one came first?';
