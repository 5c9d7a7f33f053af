-- Group: data quality
-- Example: FROM rejects_by_code;
CREATE VIEW rejects_by_code AS
SELECT
    source_file,
    day_of(started_at) AS rejected_on,
    code,
    count(*) AS rejected
FROM (SELECT source_file, run_id, unnest(reasons) AS code FROM kp.rejects)
LEFT JOIN kp.runs USING (run_id)
GROUP BY ALL
ORDER BY ALL;

COMMENT ON VIEW rejects_by_code IS 'What is rejected, and why? A row is a code, a file, and the day (UTC) of the run that first rejected its rows.';
