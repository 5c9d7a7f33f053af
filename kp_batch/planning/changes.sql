-- The current row of every id that can have changed, and how these differ from what is published.
-- Given: the tables and views of touched.sql, and scores (the published files of the days of the ids known).

-- Of files with the same content the last one counts.
CREATE TEMP VIEW accepted AS
SELECT facts.*, source_file, is_read
FROM facts
JOIN (
    SELECT file_id, max(source_file) AS source_file, any_value(is_read) AS is_read
    FROM counted
    GROUP BY file_id
) USING (file_id)
WHERE len(reasons) = 0;

CREATE TEMP TABLE shared AS
SELECT file_id, "row"
FROM accepted
ANTI JOIN moved USING (file_id)
WHERE hash(trace_id) IN (SELECT hash(trace_id) FROM known);

-- The rows of touched ids: all of moved content, and those of other content that share an id.
CREATE TEMP VIEW standing AS
FROM accepted SEMI JOIN moved USING (file_id)
UNION ALL
FROM accepted SEMI JOIN shared USING (file_id, "row");

-- The rows of ids that stand several times: the last one counts (by file, then row), of those in files that
-- can be read, if there are any.
CREATE TEMP TABLE rivals AS
SELECT
    trace_id,
    file_id,
    "row",
    content_hash,
    first(content_hash) OVER latest AS last_content,
    first(source_file) OVER latest AS last_file,
    first("row") OVER latest AS last_row,
    is_read = first(is_read) OVER latest AS is_alike,
    row_number() OVER latest = 1 AS is_last
FROM standing
WHERE hash(trace_id) IN (
    SELECT hash(trace_id) FROM standing GROUP BY hash(trace_id) HAVING count(*) > 1
)
WINDOW latest AS (PARTITION BY trace_id ORDER BY is_read DESC, source_file DESC, "row" DESC);

CREATE TEMP VIEW current AS
SELECT * EXCLUDE (reasons, is_read)
FROM standing
ANTI JOIN (FROM rivals WHERE NOT is_last) AS earlier USING (file_id, "row");

-- The touched traces beside the published scores.
CREATE TEMP TABLE compared AS
SELECT
    trace_id,
    new.created_at AS created_at,
    old.created_at AS old_created_at,
    CASE WHEN new.created_at IS NULL THEN old.source_file END AS removed_from,
    new.created_at IS NOT DISTINCT FROM old.created_at
    AND new.text_hash IS NOT DISTINCT FROM old.text_hash AS in_place,
    new.content_hash IS DISTINCT FROM old.content_hash
    OR new.source_file IS DISTINCT FROM old.source_file
    OR new.agent_id IS DISTINCT FROM old.agent_id
    OR new.framework IS DISTINCT FROM old.framework
    OR new.recorded_score IS DISTINCT FROM old.recorded_score AS differs
FROM current AS new
FULL JOIN (
    SELECT
        trace_id,
        created_at,
        text_hash,
        content_hash,
        source_file,
        agent_id,
        framework,
        recorded_score
    FROM $scores
    SEMI JOIN known USING (created_at, trace_id)
) AS old USING (trace_id);

-- Its size is known, unlike that of a condition: so none joins it the wrong way round.
CREATE TEMP TABLE unchanged AS SELECT trace_id FROM compared WHERE NOT differs;

-- New, changed, and removed traces.
CREATE TEMP TABLE changes AS
SELECT
    day_of(created_at) AS day,
    day_of(old_created_at) AS old_day,
    count(*) AS traces
FROM compared
WHERE differs
GROUP BY ALL;
