-- The wanted hashes that have no vector.
-- Given: the stream stored, wanted (a relation), key (their column of hashes), and the variable path.
COPY (
    SELECT $key
    FROM stored
    RIGHT JOIN $wanted AS wanted USING ($key)
    WHERE stored.place IS NULL
) TO (getvariable('path')) (FORMAT parquet, COMPRESSION lz4);
