-- Where each missing text stands, the texts of a file one after the other.
-- Given: texts (paths of staged texts), missing (the path of the hashes), and the variable to_embed
-- (a path).
COPY (
    WITH found AS (
        SELECT text_hash, bytes, filename AS path, file_row_number AS "row"
        FROM read_parquet([$texts], filename = true, file_row_number = true)
        SEMI JOIN read_parquet($missing) AS missing USING (text_hash)
    )
    FROM found
    QUALIFY row_number() OVER (PARTITION BY text_hash ORDER BY path, "row") = 1
    ORDER BY path, "row"
) TO (getvariable('to_embed')) (FORMAT parquet, COMPRESSION lz4);
