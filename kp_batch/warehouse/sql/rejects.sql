-- Given: rejects, the SQL for the rows of the table.
CREATE VIEW rejects AS
SELECT source_file, "row", trace_id, task_domain, reasons, message, raw, run_id
FROM $rejects;

COMMENT ON VIEW rejects IS 'One row for each row or file that the last run could not score, with all reasons.';
