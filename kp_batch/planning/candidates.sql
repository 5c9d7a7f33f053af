-- Which rows count of the touched ids.
-- Given: all_facts, contents and touched_ids (see changes.py), kind (TABLE or VIEW), without (a join that
-- leaves the forgotten out, or nothing), and cache_group (SQL, see cache_groups.py).

-- All accepted rows of these ids, of whatever content: what is looked at again and again, if they are few.
CREATE TEMP $kind touched_rows AS
FROM all_facts
WHERE len(reasons) = 0 AND hash(trace_id) IN (SELECT id FROM touched_ids);

-- Those that count. Of files with the same content the last one counts.
CREATE TEMP VIEW candidates AS
SELECT touched_rows.* EXCLUDE (reasons), source_file, is_read, $cache_group AS cache_group
FROM touched_rows
$without
JOIN (
    SELECT
        file_id,
        max(source_file) AS source_file,
        any_value(is_read) AS is_read,
        arg_max(path_keys, source_file) AS path_keys
    FROM contents
    GROUP BY file_id
) USING (file_id);

-- The rows of ids that stand several times: the last one counts (by file, then row), of those in files that
-- can be read, if there are any.
CREATE TEMP TABLE duplicates AS
SELECT
    trace_id,
    task_domain,
    file_id,
    "row",
    content_hash,
    first(content_hash) OVER latest AS last_content,
    first(source_file) OVER latest AS last_file,
    first("row") OVER latest AS last_row,
    is_read = first(is_read) OVER latest AS is_alike,
    row_number() OVER latest = 1 AS is_last
FROM candidates
WHERE hash(trace_id) IN (
    SELECT hash(trace_id) FROM candidates GROUP BY hash(trace_id) HAVING count(*) > 1
)
WINDOW latest AS (PARTITION BY trace_id ORDER BY is_read DESC, source_file DESC, "row" DESC);

CREATE TEMP VIEW current AS
SELECT * EXCLUDE (is_read)
FROM candidates
ANTI JOIN (FROM duplicates WHERE NOT is_last) AS earlier USING (file_id, "row");
