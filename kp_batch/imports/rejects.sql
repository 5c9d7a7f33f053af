-- The new refusals, and those of before of what was not read again, with whether it only waits.
-- Of files that are forgotten, or stand below such a folder, nothing stays.
-- A folder that could not be looked into, whose path ends with a slash, is looked at every time.
-- Where lines of before are damaged, one row is null.
WITH
    told AS (
        SELECT
            CASE json_type(json) WHEN 'OBJECT' THEN json::VARCHAR END AS text,
            json->>'id' AS id,
            json->>'file' AS file
        FROM read_json_objects(
            getvariable('old_refusals'), format = 'newline_delimited', ignore_errors = true
        )
    ),
    stays AS (
        FROM told
        ANTI JOIN read_parquet(getvariable('read_ids')) AS ids ON told.id = ids.id
    ),
    stays_too AS (
        FROM stays
        ANTI JOIN read_parquet(getvariable('read_files')) AS files
            ON stays.id IS NULL AND stays.file = files.path
        WHERE NOT coalesce(
            file LIKE '%/'
            OR list_bool_or(
                list_transform(getvariable('gone'), lambda x: starts_with(file || '/', x || '/'))
            ),
            false
        )
    ),
    all_of_them AS (
        SELECT text FROM stays_too UNION SELECT text FROM read_parquet(getvariable('new_refusals'))
    )
SELECT
    text, coalesce(list_has_any(text->>'$.reasons[*]', getvariable('waiting')), false) AS waits
FROM all_of_them
