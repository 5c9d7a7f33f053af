-- The new refusals, and those of before of what was not read again.
WITH
    told AS (
        SELECT json::VARCHAR AS text, json->>'id' AS id, json->>'file' AS file
        FROM read_json_objects(getvariable('old_refusals'), format = 'newline_delimited')
    ),
    stays AS (
        FROM told
        ANTI JOIN read_parquet(getvariable('read_ids')) AS ids ON told.id = ids.id
    ),
    stays_too AS (
        FROM stays
        ANTI JOIN read_parquet(getvariable('read_files')) AS files
            ON stays.id IS NULL AND stays.file = files.path
    )
SELECT text FROM stays_too UNION SELECT text FROM read_parquet(getvariable('new_refusals')) ORDER BY text
