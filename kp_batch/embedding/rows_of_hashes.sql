-- Finds the wanted rows whose vectors have these hashes, with the other columns of each hash.
-- Given: wanted and hashes (relations), and the variable path.
COPY (
    SELECT DISTINCT *
    FROM $wanted AS wanted
    JOIN $hashes AS hashes USING (hash)
) TO (getvariable('path')) (FORMAT parquet, COMPRESSION lz4);
