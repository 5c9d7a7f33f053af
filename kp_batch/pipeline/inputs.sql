-- The first place of each missing text, in the order of the files and their rows. The row groups match
-- the parts, which are slices.
-- Given: staged (the relation of some files, sorted, and of their rows' numbers), missing (that of the
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
