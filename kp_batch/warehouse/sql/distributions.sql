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

COMMENT ON VIEW distributions IS 'A row is a domain (null: all) after a run: how its scores were distributed; bins counts ten bins of equal width.';
