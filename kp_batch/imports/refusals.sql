-- The refusals of this import, and of earlier ones those that no trace or file replaces that is read
-- again, with whether they only wait. Of forgotten files, or files below such a folder, none stays.
-- A folder that could not be read, whose path ends with a slash, is read every time.
-- Where old lines are damaged, one row is null.
WITH
    old AS (
        SELECT
            CASE json_type(json) WHEN 'OBJECT' THEN json::VARCHAR END AS text,
            json->>'id' AS id,
            json->>'file' AS file
        FROM read_json_objects(
            getvariable('old_refusals'), format = 'newline_delimited', ignore_errors = true
        )
    ),
    other_traces AS (
        FROM old
        ANTI JOIN read_parquet(getvariable('read_ids')) AS ids ON old.id = ids.id
    ),
    other_files AS (
        FROM other_traces
        ANTI JOIN read_parquet(getvariable('read_files')) AS files
            ON other_traces.id IS NULL AND other_traces.file = files.path
        WHERE NOT coalesce(
            file LIKE '%/'
            OR list_bool_or(
                list_transform(
                    getvariable('forgotten'), lambda x: starts_with(file || '/', x || '/')
                )
            ),
            false
        )
    ),
    texts AS (
        SELECT text FROM other_files UNION SELECT text FROM read_parquet(getvariable('new_refusals'))
    )
SELECT
    text, coalesce(list_has_any(text->>'$.reasons[*]', getvariable('waiting')), false) AS waits
FROM texts
