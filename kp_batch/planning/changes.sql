-- Which traces came, went or changed: the archive as it is now beside what is published.
-- Given: the schema published (its tables), the relations files (the ledger as it is now), staged (the facts
-- of new content) and forgotten (ids whose rows count no more), columns (those of facts), without (a join
-- that leaves the forgotten out, or nothing), cache_group (SQL, see cache_groups.py), and the variable
-- touches_all: whether all traces are compared. What it makes for others is declared in changes.py.

CREATE TEMP TABLE ledger AS FROM $files;

-- The rows of all content that was ever read.
CREATE TEMP VIEW facts AS
SELECT $columns FROM published.facts $without
UNION ALL
SELECT $columns FROM $staged;

-- The files whose content counts, now and as published: what a file held last that is gone or unreadable
-- counts where no file that can be read holds it.
CREATE TEMP TABLE contents_then_and_now AS
SELECT is_now, source_file, file_id, "rows", status, path_keys, status = 'read' AS is_read
FROM (
    SELECT *, true AS is_now FROM ledger
    UNION ALL BY NAME
    SELECT *, false AS is_now FROM published.files
)
QUALIFY is_read OR NOT bool_or(is_read) OVER (
    -- By the bytes alone, though a new version of the facts reads no file that is gone.
    PARTITION BY is_now, regexp_replace(file_id, '-v[0-9]+$$', '')
);

CREATE TEMP VIEW contents AS
SELECT * EXCLUDE (is_now) FROM contents_then_and_now WHERE is_now;

-- Those that came, went, have other content or keys, or can be read no more, or again.
CREATE TEMP TABLE changed_contents AS
SELECT source_file, file_id
FROM contents_then_and_now
GROUP BY source_file, file_id, is_read, path_keys
HAVING count(*) = 1 OR getvariable('touches_all');

-- The one filter of what is compared: to compare ten million traces in full takes ten seconds.
-- Ids are sought by their 64-bit hashes, which take less memory; one too many changes nothing.
CREATE TEMP TABLE touched_ids AS
SELECT hash(trace_id) AS id
FROM facts SEMI JOIN changed_contents USING (file_id)
WHERE len(reasons) = 0
UNION
SELECT hash(trace_id) FROM $forgotten;

-- All accepted rows of these ids. Of files with the same content the last one counts.
CREATE TEMP VIEW candidates AS
SELECT facts.* EXCLUDE (reasons), source_file, is_read, $cache_group AS cache_group
FROM facts
JOIN (
    SELECT
        file_id,
        max(source_file) AS source_file,
        any_value(is_read) AS is_read,
        arg_max(path_keys, source_file) AS path_keys
    FROM contents
    GROUP BY file_id
) USING (file_id)
WHERE len(reasons) = 0 AND hash(trace_id) IN (SELECT id FROM touched_ids);

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
