-- Given: runs, the SQL for the rows of the table.
-- number: runs are added to one version of the table after another, whatever clocks say.
-- mixed: the scores that the run left bear several encoders or caches, or several weights of one
-- profile, as --since and --until may leave them.
CREATE VIEW runs AS
SELECT
    run_id,
    row_number() OVER (
        ORDER BY coalesce((published->'tables'->>'runs')::BIGINT, -1)
    ) AS number,
    started_at,
    finished_at,
    status,
    reason,
    config,
    inputs,
    changes,
    counts,
    seconds,
    versions,
    fingerprints,
    published,
    len(json_keys(fingerprints->'encoder_id')) > 1
    OR len(json_keys(fingerprints->'cache_id')) > 1
    OR len(list_distinct(list_transform(
        json_keys(fingerprints->'profile_id'),
        lambda id: regexp_replace(id, '-[0-9a-f]{12}-v[0-9]+$$', '')
    ))) < len(json_keys(fingerprints->'profile_id')) AS mixed
FROM $runs;

COMMENT ON VIEW runs IS 'One row a run, done or failed; number: 1, 2, 3 in the order in which they were published; config, inputs, changes, counts, seconds, versions, fingerprints and published are JSON; mixed: the scores that the run left bear several encoders or caches, or several weights of one profile.';
