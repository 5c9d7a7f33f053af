-- The texts that the replay reads.
-- Given: replay (the path of its rows).
CREATE TEMP TABLE wanted AS
SELECT DISTINCT text_hash
FROM read_parquet($replay);
