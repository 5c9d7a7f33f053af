-- Given: function (a name) and runs (SQL for the rows of the table).
-- Publications are numbered in their order, which does not depend on clocks. `number` closes the gaps.
CREATE OR REPLACE MACRO $function() AS TABLE
SELECT
    run_id,
    row_number() OVER (
        ORDER BY json_extract_string(published, '/number')::BIGINT
    ) AS number,
    started_at,
    finished_at,
    status,
    reason,
    note,
    "user",
    config,
    inputs,
    changes,
    counts,
    seconds,
    versions,
    fingerprints,
    published,
    audits
FROM $runs;

CREATE OR REPLACE VIEW runs AS FROM $function();

COMMENT ON VIEW runs IS 'A row is a run, done or failed; number: 1, 2, 3 in the order of publication; config, inputs, changes, counts, seconds, versions, fingerprints, published and audits are JSON.';
