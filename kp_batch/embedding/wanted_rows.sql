-- Finds the rows of each file whose hashes are wanted. If several files have a hash, the first one counts.
-- Given: stored (a stream), key (its column of hashes), and wanted (a relation).
SELECT
    place >> 32 AS file,
    list((place & 4294967295)::INTEGER ORDER BY place) AS "rows"
FROM (
    SELECT min(place) AS place
    FROM $stored
    SEMI JOIN $wanted AS wanted USING ($key)
    GROUP BY $key
)
GROUP BY file
ORDER BY file;
