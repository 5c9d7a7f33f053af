-- Merges the old and the new timeline of some groups' segments of days. Rows are sorted by segment, then in
-- replay order. A trace whose time, text or group changed has two rows: its old one is `removed`, its new one
-- `added`.
-- A forgotten trace of the old timeline is a removed row without an id. Its place among traces of the same
-- time is therefore unknown, and these traces are `tied`.
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
