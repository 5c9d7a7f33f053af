-- The ids that can have changed: those of the content that came or went, and those to be forgotten.
-- Given: the schema published (its tables), the relations forgotten (ids whose rows count no more),
-- files (the ledger as it is now) and staged (the facts of new content), without (a join that leaves the
-- forgotten out, or nothing), and the variable rejects_stand: whether the published rejects are those of
-- the published ledger.
-- Ids are sought by their 64-bit hashes, which take less memory; one too many changes nothing.

CREATE TEMP TABLE now AS FROM $files;

-- The rows of all content that was ever read.
CREATE TEMP VIEW facts AS
SELECT $columns FROM published.facts $without
UNION ALL
SELECT $columns FROM $staged;

-- The files whose content counts, now and as published: what a file held last that is gone or unreadable
-- counts where no file that can be read holds it.
CREATE TEMP TABLE counting AS
SELECT is_now, source_file, file_id, "rows", status, status = 'read' AS is_read
FROM (
    SELECT *, true AS is_now FROM now
    UNION ALL BY NAME
    SELECT *, false AS is_now FROM published.files
)
QUALIFY is_read OR NOT bool_or(is_read) OVER (
    -- By the bytes alone, though a new version of the facts reads no file that is gone.
    PARTITION BY is_now, regexp_replace(file_id, '-v[0-9]+$$', '')
);

CREATE TEMP VIEW counted AS FROM counting WHERE is_now;

-- Those that came, went, have other content, or can be read no more, or again.
CREATE TEMP TABLE moved AS
SELECT source_file, file_id
FROM counting
GROUP BY source_file, file_id, is_read
HAVING count(*) = 1 OR NOT getvariable('rejects_stand');

CREATE TEMP TABLE touched AS
SELECT DISTINCT hash(trace_id) AS id FROM facts SEMI JOIN moved USING (file_id) WHERE len(reasons) = 0
UNION
SELECT hash(trace_id) FROM $forgotten;

-- Those of them that are published, by facts: each accepted row of published content has made its id
-- a score, and the files of the facts are few, where the scores have one a day. An id may stand here
-- with several times, of which its score has one. Accepted rows of content that has not moved have no
-- others.
CREATE TEMP TABLE known AS
SELECT DISTINCT trace_id, created_at
FROM published.facts
SEMI JOIN published.files USING (file_id)
WHERE len(reasons) = 0 AND hash(trace_id) IN (SELECT id FROM touched);
