-- Samples published traces. Each has its position in the timeline, the position of the first trace of its
-- cache, and its place in the archive.
-- Given: the schema published (its tables), and the variables traces (how many) and seed (a text).
CREATE TEMP TABLE timeline AS
SELECT
    row_number() OVER (ORDER BY cache_group, created_at, trace_id) - 1 AS position,
    cache_group,
    trace_id,
    created_at,
    text_hash
FROM published.scores;

CREATE TEMP TABLE sampled AS
SELECT
    scores.*,
    timeline.position,
    caches.first,
    locations.file_id,
    locations."row",
    locations.status,
    locations.path_keys
FROM (
    FROM published.scores
    ORDER BY md5(getvariable('seed') || trace_id), trace_id
    LIMIT getvariable('traces')
) AS scores
JOIN timeline USING (trace_id)
JOIN (SELECT cache_group, min(position) AS first FROM timeline GROUP BY ALL) AS caches
    ON caches.cache_group IS NOT DISTINCT FROM scores.cache_group
LEFT JOIN (
    SELECT trace_id, content_hash, source_file, status, path_keys, file_id, max("row") AS "row"
    FROM published.facts
    JOIN published.files USING (file_id)
    WHERE len(facts.reasons) = 0
    GROUP BY ALL
) AS locations USING (trace_id, content_hash, source_file);
