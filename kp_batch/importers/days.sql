-- The days whose files change, and whether they gain a trace.
WITH
    gaining AS (
        SELECT DISTINCT new.metadata.created_at[:10] AS day
        FROM read_parquet(getvariable('new')) AS new
    ),
    losing AS (
        SELECT DISTINCT old.metadata.created_at[:10] AS day
        FROM read_parquet(getvariable('old')) AS old
        SEMI JOIN read_parquet(getvariable('touched')) AS touched ON old.id = touched.id
        WHERE getvariable('has_old')
    )
SELECT day, gaining.day IS NOT NULL AS gains
FROM gaining FULL JOIN losing USING (day)
ORDER BY day
