-- Counts the stored hashes that are not wanted. Hashes that were removed are empty.
-- Given: stored (a stream) and wanted (a relation).
SELECT count(DISTINCT hash)
FROM stored
ANTI JOIN $wanted AS wanted USING (hash)
WHERE hash <> '';
