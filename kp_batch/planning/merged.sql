-- The old and the new timeline of some groups' segments of days, merged: the columns that place a trace. A
-- trace with another time, text or group has two rows: its old one, `removed`, and its new one, `added`. Rows
-- are sorted by segment, then in replay order.
-- A forgotten trace of the old timeline is a removed row without an id. Its place among traces of the very
-- same time is therefore unknown: these are `tied` to it.
-- Given: the schema published (its tables), scores (the published files of these days), segments (see
-- segments.sql) and diff (see changes.py).
WITH replaced AS NOT MATERIALIZED (
    SELECT * FROM diff WHERE NOT in_place
)
SELECT merged.* EXCLUDE (cache_group), segment
FROM (
    SELECT
        old.cache_group,
        old.trace_id,
        old.created_at,
        old.text_hash,
        old.encoder_id,
        old.cache_id,
        old.cached_vectors,
        false AS added,
        replaced.trace_id IS NOT NULL AS removed,
        (old.created_at, coalesce(old.cache_group, '')) IN (
            SELECT (created_at, coalesce(cache_group, '')) FROM published.tombstones
        ) AS tied
    FROM $scores AS old
    LEFT JOIN replaced ON replaced.trace_id = old.trace_id
    UNION ALL
    SELECT cache_group, trace_id, created_at, text_hash, NULL, NULL, NULL, true, false, false
    FROM replaced
    WHERE created_at IS NOT NULL
    UNION ALL
    SELECT cache_group, NULL, created_at, NULL, NULL, NULL, NULL, false, true, false
    FROM published.tombstones
) AS merged
JOIN segments
    ON segments.cache_group IS NOT DISTINCT FROM merged.cache_group
    AND day = day_of(created_at)
ORDER BY segment, created_at, trace_id NULLS LAST;
