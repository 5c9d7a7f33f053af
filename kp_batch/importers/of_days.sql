-- All traces of some days: the new ones, and those of before that were not read again.
WITH
    stays AS (
        FROM read_parquet(getvariable('old')) AS old
        ANTI JOIN read_parquet(getvariable('touched')) AS touched ON old.id = touched.id
        WHERE getvariable('has_old')
    ),
    traces AS (FROM stays UNION ALL BY NAME FROM read_parquet(getvariable('new')))
FROM traces
WHERE list_contains(getvariable('days'), traces.metadata.created_at[:10])
ORDER BY traces.metadata.created_at, traces.id
