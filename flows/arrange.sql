-- Of the rows with one id the last one counts (by file, then row). Those before it count as the
-- same trace where their content is equal, and are superseded where it is not.
CREATE TEMP TABLE ranked AS
SELECT
    * EXCLUDE ("text", reasons),
    row_number() OVER latest AS rank,
    first(content_hash) OVER latest AS last_content,
    first(source_file) OVER latest AS last_file,
    first("row") OVER latest AS last_row
FROM read_parquet(getvariable('rows'), hive_partitioning = false)
WHERE len(reasons) = 0 AND NOT list_contains(getvariable('unreadable'), source_file)
WINDOW latest AS (
    PARTITION BY trace_id
    ORDER BY source_file DESC, "row" DESC
    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
);

COPY (
    SELECT * EXCLUDE (rank, last_content, last_file, last_row)
    FROM ranked
    WHERE rank = 1
    ORDER BY created_at, trace_id
) TO (getvariable('timeline')) (FORMAT parquet, COMPRESSION zstd);

COPY (
    SELECT source_file, "row", trace_id, last_file, last_row
    FROM ranked
    WHERE rank > 1 AND content_hash <> last_content
    ORDER BY source_file, "row"
) TO (getvariable('superseded')) (FORMAT parquet, COMPRESSION zstd);
