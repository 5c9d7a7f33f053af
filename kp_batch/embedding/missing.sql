-- The wanted hashes that have no vector.
-- Given: the stream stored, wanted (a relation), and the variable path.
COPY (
    SELECT text_hash
    FROM stored
    RIGHT JOIN $wanted AS wanted USING (text_hash)
    WHERE stored.place IS NULL
) TO (getvariable('path')) (FORMAT parquet, COMPRESSION lz4);
