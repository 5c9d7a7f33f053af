-- Writes the rejected rows and files of the current archive, in its order: unreadable files, rows that cannot
-- be scored, and rows whose id comes again later with other content. A row that was already rejected with this
-- content keeps the run that rejected it. It also keeps its message, unless messages have changed.
-- Given: the schema published (its tables), ledger, contents, changed_contents, touched_ids,
-- duplicates and facts (see changes.py), and the variables rejected (a path) and messages_current.
COPY (
    WITH unchanged_contents AS (
        FROM contents ANTI JOIN changed_contents USING (source_file, file_id)
    ),
    rejected AS (
        SELECT
            source_file,
            NULL AS "row",
            NULL AS trace_id,
            NULL AS task_domain,
            reasons,
            message,
            NULL AS file_id
        FROM ledger
        WHERE len(reasons) > 0
        UNION ALL
        SELECT source_file, "row", trace_id, task_domain, facts.reasons, NULL, file_id
        FROM facts
        JOIN contents USING (file_id)
        WHERE len(facts.reasons) > 0
        UNION ALL
        SELECT
            contents.source_file,
            "row",
            trace_id,
            task_domain,
            ['superseded'],
            CASE
                WHEN last_availability = 0 THEN 'the row that superseded it is no longer in the archive'
                ELSE 'the same id has other content in ' || last_file || ', row ' || last_row
                    || CASE
                        WHEN last_availability = availability THEN ', later in the archive'
                        WHEN last_availability = 2 THEN ', which can be read'
                        ELSE ', whose score is published'
                    END
            END,
            file_id
        FROM duplicates
        JOIN contents USING (file_id)
        WHERE content_hash <> last_content OR last_availability = 0
        UNION ALL
        -- Rows of untouched ids stay superseded.
        SELECT source_file, "row", trace_id, task_domain, reasons, message, file_id
        FROM published.rejects
        SEMI JOIN unchanged_contents USING (source_file, file_id)
        WHERE reasons = ['superseded'] AND hash(trace_id) NOT IN (SELECT id FROM touched_ids)
    )
    SELECT
        rejected.source_file,
        rejected."row",
        rejected.trace_id,
        rejected.task_domain,
        rejected.reasons,
        coalesce(
            rejected.message,
            CASE WHEN published_row.reasons = rejected.reasons AND getvariable('messages_current')
                THEN published_row.message END
        ) AS message,
        CASE WHEN published_row.reasons = rejected.reasons
            AND published_row.message = coalesce(rejected.message, published_row.message)
            THEN published_row.run_id END AS run_id,
        rejected.file_id
    FROM rejected
    LEFT JOIN published.rejects AS published_row
        ON published_row.source_file = rejected.source_file
        AND published_row."row" IS NOT DISTINCT FROM rejected."row"
        AND published_row.file_id IS NOT DISTINCT FROM rejected.file_id
    ORDER BY rejected.source_file, rejected."row"
) TO (getvariable('rejected')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16_384);
