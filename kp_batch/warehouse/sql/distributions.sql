-- Given: function (a name) and distributions (SQL for the rows of the table).
CREATE OR REPLACE MACRO $function() AS TABLE
SELECT
    run_id,
    task_domain,
    traces,
    at_threshold,
    mean,
    p5,
    p25,
    p50,
    p75,
    p95,
    bins
FROM $distributions;

CREATE OR REPLACE VIEW distributions AS FROM $function();

COMMENT ON VIEW distributions IS 'How the scores were distributed when each run had ended, one row a domain (null: all of them); bins counts ten bins of equal width.';
