-- Finds where the archive has the scored content of some traces, in the order in which its files are read.
-- A row that is no longer known gets the greatest possible number.
-- Given, as SQL: wanted (rows with trace_id, source_file and content_hash), and the rows of the tables
-- files and facts.
SELECT wanted.*, coalesce(max(facts."row"), 9223372036854775807) AS "row"
FROM $wanted AS wanted
LEFT JOIN (SELECT source_file, file_id FROM $files) AS files USING (source_file)
LEFT JOIN (
    SELECT file_id, trace_id, content_hash, "row"
    FROM $facts
    SEMI JOIN $wanted AS ids USING (trace_id)
    WHERE len(reasons) = 0
) AS facts USING (file_id, trace_id, content_hash)
GROUP BY ALL
ORDER BY wanted.source_file, "row"
