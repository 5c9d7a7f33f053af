-- Finds the rows that may count for each touched id.
-- Given: touched_rows and contents (see changes.py), scores (the published files of the days of these rows),
-- without (a join that leaves out forgotten ids, or nothing), and cache_group (SQL, see cache_groups.py).

-- A file that is not read changes nothing. Only those of its rows count that have the published content of
-- their trace. Other content was superseded, and its text may have no vector.
CREATE TEMP TABLE kept AS
SELECT file_id, "row"
FROM touched_rows
SEMI JOIN (FROM contents WHERE NOT is_read) AS kept_contents USING (file_id)
SEMI JOIN $scores AS scores USING (trace_id, content_hash);

-- If several files have the same content, the last one counts. `availability` is 2 if the row's file can be
-- read, and 1 if the row is kept. Otherwise it is 0, and the row does not count.
CREATE TEMP VIEW candidates AS
SELECT
    touched_rows.* EXCLUDE (reasons),
    source_file,
    $cache_group AS cache_group,
    CASE WHEN is_read THEN 2 WHEN kept.file_id IS NOT NULL THEN 1 ELSE 0 END AS availability
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
) USING (file_id)
LEFT JOIN kept USING (file_id, "row");

-- Lists the rows of ids that have several rows, or none that counts. The last row (by file, then row) in a
-- readable file counts. If there is none, the last row that is kept does.
CREATE TEMP TABLE duplicates AS
SELECT
    trace_id,
    task_domain,
    file_id,
    "row",
    content_hash,
    availability,
    first(content_hash) OVER latest AS last_content,
    first(source_file) OVER latest AS last_file,
    first("row") OVER latest AS last_row,
    first(availability) OVER latest AS last_availability,
    row_number() OVER latest = 1 AS is_last
FROM candidates
WHERE hash(trace_id) IN (
    SELECT hash(trace_id) FROM candidates GROUP BY hash(trace_id) HAVING count(*) > 1 OR min(availability) = 0
)
WINDOW latest AS (PARTITION BY trace_id ORDER BY availability DESC, source_file DESC, "row" DESC);

CREATE TEMP VIEW current AS
SELECT * EXCLUDE (availability)
FROM candidates
ANTI JOIN (FROM duplicates WHERE NOT is_last) AS earlier USING (file_id, "row")
WHERE availability > 0;
