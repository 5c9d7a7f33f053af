-- The missing texts that were not just read.
-- Given: missing (the relation of their hashes), and staged (a relation of the hashes just read).
CREATE TEMP TABLE unread AS
FROM $missing AS missing
ANTI JOIN $staged AS staged USING (text_hash);
