-- Finds new, removed and changed traces: compares the current archive with the published tables.
-- Given: the schema published (its tables), the relations files (the current ledger), staged (the facts of new
-- content) and forgotten (ids whose rows no longer count), columns (those of facts), without (a join that
-- leaves out forgotten ids, or nothing), and the variable touches_all (whether to compare all traces).
-- changes.py declares the relations that other modules read.

CREATE TEMP TABLE ledger AS FROM $files;

-- All rows that were ever read.
CREATE TEMP VIEW all_facts AS
SELECT $columns FROM published.facts
UNION ALL
SELECT $columns FROM $staged;

CREATE TEMP VIEW facts AS FROM all_facts $without;

-- The files whose content counts, now and as published. A file that is gone, unreadable or excluded counts
-- with its last content, unless a file that is read has that content.
CREATE TEMP TABLE contents_then_and_now AS
SELECT is_now, source_file, file_id, "rows", status, path_keys, status = 'read' AS is_read
FROM (
    SELECT *, true AS is_now FROM ledger
    UNION ALL BY NAME
    SELECT *, false AS is_now FROM published.files
)
QUALIFY is_read OR NOT bool_or(is_read) OVER (
    -- Compare the bytes only: files that are gone have facts of an older version.
    PARTITION BY is_now, regexp_replace(file_id, '-v[0-9]+$$', '')
);

CREATE TEMP VIEW contents AS
SELECT * EXCLUDE (is_now) FROM contents_then_and_now WHERE is_now;

-- Files that are new or gone, that have other content or keys, or whose readability changed.
CREATE TEMP TABLE changed_contents AS
SELECT source_file, file_id
FROM contents_then_and_now
GROUP BY source_file, file_id, is_read, path_keys
HAVING count(*) = 1 OR getvariable('touches_all');

-- Only these traces are compared: comparing ten million in full takes ten seconds.
-- Ids are found by their 64-bit hashes, which take less memory. A collision only adds an unchanged trace.
CREATE TEMP TABLE touched_ids AS
SELECT hash(trace_id) AS id
FROM facts SEMI JOIN changed_contents USING (file_id)
WHERE len(reasons) = 0
UNION
SELECT hash(trace_id) FROM $forgotten;

-- The content with these ids, which is usually little; of other content only the ids are read. It is a table,
-- because DuckDB then knows its size and opens few files.
CREATE TEMP TABLE touched_contents AS
SELECT DISTINCT file_id FROM all_facts WHERE len(reasons) = 0 AND hash(trace_id) IN (SELECT id FROM touched_ids);
