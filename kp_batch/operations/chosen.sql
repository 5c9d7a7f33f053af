-- The traces of an export, in the order in which the archive's files are read: where each stands.
-- Given: places (see places.sql, of the rows of wanted with their content_hash), and the variable
-- path.
COPY ($places) TO (getvariable('path')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16384);
