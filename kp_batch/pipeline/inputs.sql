-- Writes the first place of each missing text, in the order of the files and their rows. The row
-- groups are small, because each part of the embedding reads a slice.
-- Given: staged (a relation: the rows of some sorted files, with their numbers), missing (a relation of
-- hashes), and the variables staged (the list of the files) and inputs (a path).
COPY (
    SELECT
        getvariable('staged')[1 + (place >> 40)] AS path,
        place & 1099511627775 AS "row",
        bytes
    FROM (
        SELECT
            min((file_index::BIGINT << 40) | file_row_number) AS place,
            any_value(bytes) AS bytes
        FROM $staged AS staged
        SEMI JOIN $missing AS missing USING (text_hash)
        GROUP BY text_hash
        ORDER BY place
    )
) TO (getvariable('inputs')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16384);
