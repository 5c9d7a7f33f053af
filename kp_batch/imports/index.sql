-- What was read: each file, and the traces that it tells of; and the rest as it was.
WITH
    pairs AS (
        SELECT DISTINCT path, stamp, trace
        FROM read JOIN read_parquet(getvariable('units')) AS units ON read.path = units.file
    )
SELECT path, stamp, NULL::VARCHAR AS trace, true AS told FROM read
UNION ALL
SELECT path, stamp, trace, true FROM pairs
UNION ALL
SELECT old.path, read.stamp, old.trace, old.told AND NOT read.whole
FROM old JOIN read ON old.path = read.path
    ANTI JOIN pairs ON old.path = pairs.path AND old.trace = pairs.trace
WHERE old.trace IS NOT NULL
UNION ALL
SELECT path, stamp, trace, told FROM old ANTI JOIN read ON old.path = read.path
ORDER BY path, trace
