-- Of each chunk, the rows whose texts are wanted; of a text that stands in several, in the first.
-- Given: the stream stored, and wanted (a relation).
SELECT
    place >> 32 AS chunk,
    list((place & 4294967295)::INTEGER ORDER BY place) AS "rows"
FROM (
    SELECT min(place) AS place
    FROM stored
    SEMI JOIN $wanted AS wanted USING (text_hash)
    GROUP BY text_hash
)
GROUP BY chunk
ORDER BY chunk;
