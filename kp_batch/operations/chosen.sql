-- The traces of an export, in the order in which the archive's files are read: where each stands.
-- What is not known to stand anywhere any more stands beyond all rows.
-- Given: the view files, the table wanted (rows of the view scores), scores and facts (the SQL for
-- the rows of these tables), and the variable path.
COPY (
    SELECT
        source_file,
        coalesce(max(facts."row"), 9223372036854775807) AS "row",
        trace_id,
        content_hash,
        wanted.created_at,
        wanted.score,
        wanted.run_id,
        wanted.encoder_id,
        wanted.cache_id,
        wanted.profile_id,
        wanted.text_hash
    FROM wanted
    JOIN (SELECT trace_id, content_hash FROM $scores) AS hashes USING (trace_id)
    LEFT JOIN (SELECT source_file, file_id FROM files) AS files USING (source_file)
    LEFT JOIN (
        SELECT file_id, trace_id, content_hash, "row" FROM $facts WHERE len(reasons) = 0
    ) AS facts USING (file_id, trace_id, content_hash)
    GROUP BY ALL
    ORDER BY source_file, "row"
) TO (getvariable('path')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16384);
