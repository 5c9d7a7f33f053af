-- Some published traces, each with its position in the timeline, and where the archive has it.
-- Given: the schema published (its tables), and the variables traces (how many) and seed (a text).
CREATE TEMP TABLE timeline AS
SELECT
    row_number() OVER (ORDER BY created_at, trace_id) - 1 AS position,
    trace_id,
    created_at,
    text_hash
FROM published.scores;

CREATE TEMP TABLE sampled AS
SELECT scores.*, timeline.position, found.file_id, found."row", found.status
FROM (
    FROM published.scores
    ORDER BY md5(getvariable('seed') || trace_id), trace_id
    LIMIT getvariable('traces')
) AS scores
JOIN timeline USING (trace_id)
LEFT JOIN (
    SELECT trace_id, content_hash, source_file, status, file_id, max("row") AS "row"
    FROM published.facts
    JOIN published.files USING (file_id)
    WHERE len(facts.reasons) = 0
    GROUP BY ALL
) AS found USING (trace_id, content_hash, source_file);
