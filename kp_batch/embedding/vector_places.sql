-- Finds the place of each vector, by position. If several chunks have a hash, the first one counts.
-- The row groups are small, because a span of a replay reads a slice.
-- Given: stored (a stream), wanted (a relation), and the variables chunks (names) and path.
COPY (
    SELECT
        (getvariable('chunks')::VARCHAR[])[1 + (place >> 32)] AS chunk,
        (place & 4294967295)::INTEGER AS "row"
    FROM (
        SELECT wanted.position, min(stored.place) AS place
        FROM stored
        RIGHT JOIN $wanted AS wanted USING (hash)
        GROUP BY wanted.position
        ORDER BY wanted.position
    )
) TO (getvariable('path')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16384);
