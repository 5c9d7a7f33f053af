-- Finds the files that have some texts. An unreadable file counts only if no readable file has the text.
-- Given: texts (a table of hashes), ledger and facts (see changes.py).
WITH holders AS NOT MATERIALIZED (
    SELECT text_hash, source_file, status
    FROM facts
    SEMI JOIN $texts AS texts USING (text_hash)
    JOIN ledger USING (file_id)
    WHERE len(facts.reasons) = 0
)
SELECT DISTINCT source_file, status
FROM holders
WHERE status = 'read'
UNION ALL
SELECT DISTINCT source_file, status
FROM holders
ANTI JOIN (SELECT text_hash FROM holders WHERE status = 'read') USING (text_hash)
WHERE status <> 'read';
