-- What was read: each file, and the traces that it tells of.
SELECT path, stamp, NULL::VARCHAR AS trace, true AS told FROM read
UNION ALL
SELECT DISTINCT path, stamp, trace, true
FROM read JOIN read_parquet(getvariable('units')) AS units ON read.path = units.file
ORDER BY path, trace
