-- Where each missing text stands first, in the order of the files and their rows. The row groups suit
-- the chunks, which are slices.
-- Given: texts (a list of staged files, sorted), missing (the path of the hashes), and the variables
-- texts (the same list) and to_embed (a path).
COPY (
    SELECT
        getvariable('texts')[1 + (place >> 40)] AS path,
        place & 1099511627775 AS "row",
        bytes
    FROM (
        SELECT
            min((file_index::BIGINT << 40) | file_row_number) AS place,
            any_value(bytes) AS bytes
        FROM read_parquet([$texts], file_row_number = true)
        SEMI JOIN read_parquet($missing) AS missing USING (text_hash)
        GROUP BY text_hash
        ORDER BY place
    )
) TO (getvariable('to_embed')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16384);
