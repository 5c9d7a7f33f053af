-- The texts that the replay reads.
-- Given: replay (the relation of its rows).
CREATE TEMP TABLE wanted AS
SELECT DISTINCT text_hash
FROM $replay;
