-- Given: runs, the SQL for the rows of the table.
CREATE VIEW runs AS
SELECT
    run_id,
    started_at,
    finished_at,
    status,
    reason,
    config,
    inputs,
    counts,
    seconds,
    versions,
    fingerprints,
    published
FROM $runs;

COMMENT ON VIEW runs IS 'One row a run, done or failed; config, inputs, counts, seconds, versions, fingerprints and published are JSON.';
