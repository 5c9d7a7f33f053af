-- The wanted rows whose vectors have some hashes, each with the other columns of its hash.
-- Given: wanted and hashes (relations), and the variable path.
COPY (
    SELECT DISTINCT *
    FROM $wanted AS wanted
    JOIN $hashes AS hashes USING (hash)
) TO (getvariable('path')) (FORMAT parquet, COMPRESSION lz4);
