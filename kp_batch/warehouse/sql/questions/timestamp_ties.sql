-- Group: data quality
-- Example: FROM timestamp_ties LIMIT 10;
-- Shared times are found before ids are listed: few times are shared, and a list for every time takes memory.
CREATE VIEW timestamp_ties AS
WITH shared AS (
    SELECT created_at FROM kp.scores GROUP BY created_at HAVING count(*) > 1
)
SELECT created_at, count(*) AS traces, list(trace_id ORDER BY trace_id) AS trace_ids
FROM kp.scores
SEMI JOIN shared USING (created_at)
GROUP BY created_at
ORDER BY traces DESC, created_at;

COMMENT ON VIEW timestamp_ties IS 'Which traces have the same time, so that their ids decide which came first? A row is a time.';
