-- The files that hold the wanted texts; one that cannot be read only where no other holds a text.
-- Given: the tables wanted (text hashes), now (the ledger) and the view facts (see changes.sql).
WITH places AS (
    SELECT DISTINCT text_hash, source_file, status
    FROM facts
    SEMI JOIN wanted USING (text_hash)
    JOIN now USING (file_id)
    WHERE len(facts.reasons) = 0
)
SELECT DISTINCT source_file, status
FROM places
WHERE
    status = 'read'
    OR text_hash NOT IN (SELECT text_hash FROM places WHERE status = 'read');
