-- Finds the wanted hashes that have no vector.
-- Given: stored (a stream), wanted (a relation), and the variable path.
COPY (
    SELECT wanted.text_hash
    FROM stored
    RIGHT JOIN $wanted AS wanted USING (hash)
    GROUP BY wanted.text_hash
    HAVING min(stored.place) IS NULL
) TO (getvariable('path')) (FORMAT parquet, COMPRESSION lz4);
