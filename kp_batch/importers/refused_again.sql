-- The new refusals, and those of before of what was not read again.
WITH
    told AS (
        SELECT text, text->>'id' AS id, text->>'file' AS file
        FROM (SELECT unnest(string_split(content, E'\n')) AS text
              FROM read_text(getvariable('old_refusals')))
        WHERE text <> ''
    ),
    stays AS (
        FROM told
        WHERE CASE
            WHEN id IS NULL THEN file NOT IN (SELECT path FROM read_parquet(getvariable('read_files')))
            ELSE id NOT IN (SELECT id FROM read_parquet(getvariable('read_ids')))
        END
    )
SELECT text FROM stays UNION SELECT text FROM read_parquet(getvariable('new_refusals')) ORDER BY text
