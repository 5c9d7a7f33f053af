-- What was read, see index.sql, and the rest as it was.
SELECT path, stamp, NULL::VARCHAR AS trace FROM read
UNION ALL
SELECT DISTINCT path, stamp, trace
FROM read JOIN read_parquet(getvariable('units')) AS units ON read.path = units.file
UNION ALL
SELECT path, stamp, trace FROM read_parquet(getvariable('index')) AS old ANTI JOIN read USING (path)
ORDER BY path, trace
