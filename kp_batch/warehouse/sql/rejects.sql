-- Given: function (a name) and rejects (SQL for the rows of the table).
CREATE OR REPLACE MACRO $function() AS TABLE
SELECT source_file, "row", trace_id, task_domain, reasons, message, raw, run_id
FROM $rejects;

CREATE OR REPLACE VIEW rejects AS FROM $function();

COMMENT ON VIEW rejects IS 'A row is a row or file that the last run could not score, with all reasons.';
