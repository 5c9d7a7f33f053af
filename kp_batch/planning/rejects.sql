-- The rows and files that are refused as the archive stands now, in its order: unreadable files, rows
-- that cannot be scored, and rows with an id that stands again, with other content, later in the
-- archive. What is published of the same row of the same content is kept: its JSON, and the run that
-- refused it. Given: the schema published (its tables), the table now (the ledger), the view facts
-- (see changes.sql), and the variable refused (a path).
COPY (
    WITH standing AS (
        SELECT facts.*, now.source_file FROM facts JOIN now USING (file_id)
    ),
    accepted AS (
        SELECT trace_id, source_file, file_id, "row", content_hash
        FROM standing
        WHERE len(reasons) = 0
    ),
    several AS (
        SELECT trace_id
        FROM accepted
        GROUP BY trace_id
        HAVING min(content_hash) <> max(content_hash)
    ),
    ranked AS (
        SELECT
            *,
            first(content_hash) OVER latest AS last_content,
            first(source_file) OVER latest AS last_file,
            first("row") OVER latest AS last_row
        FROM accepted
        SEMI JOIN several USING (trace_id)
        WINDOW latest AS (
            PARTITION BY trace_id
            ORDER BY source_file DESC, "row" DESC
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        )
    ),
    refused AS (
        SELECT source_file, NULL AS "row", NULL AS trace_id, reasons, message, NULL AS file_id
        FROM now
        WHERE len(reasons) > 0
        UNION ALL
        SELECT
            source_file,
            "row",
            trace_id,
            reasons,
            NULL,
            file_id
        FROM standing
        WHERE len(reasons) > 0
        UNION ALL
        SELECT
            source_file,
            "row",
            trace_id,
            ['superseded'],
            'the same id stands with other content in ' || last_file || ', row ' || last_row
                || ', later in the archive',
            file_id
        FROM ranked
        WHERE content_hash <> last_content
    )
    SELECT
        refused.source_file,
        refused."row",
        refused.trace_id,
        refused.reasons,
        refused.message,
        known.raw,
        CASE WHEN known.reasons = refused.reasons
            AND known.message = coalesce(refused.message, known.message)
            THEN known.run_id END AS run_id,
        refused.file_id
    FROM refused
    LEFT JOIN published.rejects AS known
        ON known.source_file = refused.source_file
        AND known."row" IS NOT DISTINCT FROM refused."row"
        AND known.file_id IS NOT DISTINCT FROM refused.file_id
    ORDER BY refused.source_file, refused."row"
) TO (getvariable('refused')) (FORMAT parquet, COMPRESSION lz4);
