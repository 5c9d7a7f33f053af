-- The rows and files that are refused as the archive stands now, in its order: unreadable files, rows
-- that cannot be scored, and rows with an id that stands again, with other content, later in the
-- archive. What is published of the same row of the same content is kept: its JSON, and the run that
-- refused it. Given: the schema published (its tables), the tables now, moved, touched and rivals and
-- the view facts (see changes.sql), and the variable refused (a path).
COPY (
    WITH as_before AS (
        FROM now ANTI JOIN moved USING (source_file, file_id)
    ),
    refused AS (
        SELECT source_file, NULL AS "row", NULL AS trace_id, reasons, message, NULL AS file_id
        FROM now
        WHERE len(reasons) > 0
        UNION ALL
        -- The rows of moved files, and of other files those of touched ids.
        SELECT source_file, "row", trace_id, facts.reasons, NULL, file_id
        FROM facts
        JOIN (FROM now SEMI JOIN moved USING (source_file, file_id)) USING (file_id)
        WHERE len(facts.reasons) > 0
        UNION ALL
        SELECT source_file, "row", trace_id, facts.reasons, NULL, file_id
        FROM facts
        JOIN as_before USING (file_id)
        WHERE len(facts.reasons) > 0 AND hash(trace_id) IN (SELECT id FROM touched)
        UNION ALL
        SELECT
            now.source_file,
            "row",
            trace_id,
            ['superseded'],
            'the same id stands with other content in ' || last_file || ', row ' || last_row
                || ', later in the archive',
            file_id
        FROM rivals
        JOIN now USING (file_id)
        WHERE content_hash <> last_content
        UNION ALL
        -- All others are refused as they were.
        SELECT
            source_file,
            "row",
            trace_id,
            reasons,
            CASE WHEN reasons = ['superseded'] THEN message END,
            file_id
        FROM published.rejects
        SEMI JOIN as_before USING (source_file, file_id)
        WHERE hash(trace_id) NOT IN (SELECT id FROM touched)
    )
    SELECT
        refused.source_file,
        refused."row",
        refused.trace_id,
        refused.reasons,
        refused.message,
        known.raw,
        known.message AS known_message,
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
) TO (getvariable('refused')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16_384);
