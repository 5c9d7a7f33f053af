-- How many vectors there are of wanted texts, each text counted once.
-- Given: the stream stored, and wanted (a relation).
SELECT count(DISTINCT text_hash)
FROM stored
SEMI JOIN $wanted AS wanted USING (text_hash);
