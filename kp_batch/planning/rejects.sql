-- The rows and files that are rejected as the archive stands now, in its order: unreadable files, rows
-- that cannot be scored, and rows with an id that stands again, with other content, later in the
-- archive. What is published of the same row of the same content is kept: its JSON, and the run that
-- rejected it. Given: the schema published (its tables), ledger, changed_contents, touched_ids, duplicates,
-- contents and facts (see changes.py), and the variable rejected (a path).
COPY (
    WITH as_before AS (
        FROM contents ANTI JOIN changed_contents USING (source_file, file_id)
    ),
    rejected AS (
        SELECT source_file, NULL AS "row", NULL AS trace_id, reasons, message, NULL AS file_id
        FROM ledger
        WHERE len(reasons) > 0
        UNION ALL
        -- The rows of moved files, and of other files those of touched ids.
        SELECT source_file, "row", trace_id, facts.reasons, NULL, file_id
        FROM facts
        JOIN (FROM contents SEMI JOIN changed_contents USING (source_file, file_id)) USING (file_id)
        WHERE len(facts.reasons) > 0
        UNION ALL
        SELECT source_file, "row", trace_id, facts.reasons, NULL, file_id
        FROM facts
        JOIN as_before USING (file_id)
        WHERE len(facts.reasons) > 0 AND hash(trace_id) IN (SELECT id FROM touched_ids)
        UNION ALL
        SELECT
            contents.source_file,
            "row",
            trace_id,
            ['superseded'],
            'the same id stands with other content in ' || last_file || ', row ' || last_row
                || if(is_alike, ', later in the archive', ', which can be read'),
            file_id
        FROM duplicates
        JOIN contents USING (file_id)
        WHERE content_hash <> last_content
        UNION ALL
        -- All others are rejected as they were.
        SELECT
            source_file,
            "row",
            trace_id,
            reasons,
            CASE WHEN reasons = ['superseded'] THEN message END,
            file_id
        FROM published.rejects
        SEMI JOIN as_before USING (source_file, file_id)
        WHERE hash(trace_id) NOT IN (SELECT id FROM touched_ids)
    )
    SELECT
        rejected.source_file,
        rejected."row",
        rejected.trace_id,
        rejected.reasons,
        rejected.message,
        known.raw,
        known.message AS known_message,
        CASE WHEN known.reasons = rejected.reasons
            AND known.message = coalesce(rejected.message, known.message)
            THEN known.run_id END AS run_id,
        rejected.file_id
    FROM rejected
    LEFT JOIN published.rejects AS known
        ON known.source_file = rejected.source_file
        AND known."row" IS NOT DISTINCT FROM rejected."row"
        AND known.file_id IS NOT DISTINCT FROM rejected.file_id
    ORDER BY rejected.source_file, rejected."row"
) TO (getvariable('rejected')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16_384);
