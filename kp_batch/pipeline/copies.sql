-- The texts without a vector, with the hashes of their windows, in the order of the files and rows.
-- Given: the views windows and without_vector, and the variable copies (a path).
COPY (
    SELECT text_hash, window_hash
    FROM windows
    SEMI JOIN without_vector USING (text_hash)
    ORDER BY filename, file_row_number
) TO (getvariable('copies')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16384);
