-- The files that told of traces which were read now, but for what files that were read tell again.
WITH
    units AS (SELECT DISTINCT file, trace FROM read_parquet(getvariable('units'))),
    old AS (
        FROM read_parquet(getvariable('index')) AS known
        SEMI JOIN units ON known.trace = units.trace
    )
SELECT path, told AND read.path IS NULL AS still, list(DISTINCT trace)
FROM old LEFT JOIN read USING (path)
ANTI JOIN units ON old.path = units.file AND old.trace = units.trace
GROUP BY ALL
ORDER BY path, still
