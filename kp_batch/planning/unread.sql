-- The missing texts that were not just read.
-- Given: missing (the path of their hashes), and staged (a relation of the hashes just read).
CREATE TEMP TABLE unread AS
FROM read_parquet($missing) AS missing
ANTI JOIN $staged AS staged USING (text_hash);
