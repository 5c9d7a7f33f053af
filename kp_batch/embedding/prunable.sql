-- How many stored hashes are not wanted; removed ones are empty.
-- Given: the stream stored, and wanted (a relation).
SELECT count(DISTINCT hash)
FROM stored
ANTI JOIN $wanted AS wanted USING (hash)
WHERE hash <> '';
