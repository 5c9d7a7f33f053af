-- The files that told of traces which were read now, but for what files that were read tell again.
WITH
    units AS (SELECT DISTINCT file, trace FROM read_parquet(getvariable('units'))),
    touched AS (FROM old SEMI JOIN units ON old.trace = units.trace)
SELECT path, told AND read.path IS NULL AS still, list(DISTINCT trace)
FROM touched LEFT JOIN read USING (path)
ANTI JOIN units ON touched.path = units.file AND touched.trace = units.trace
GROUP BY ALL
ORDER BY path, still
