-- The timeline of some days, in replay order: each trace as the archive has it now, and what is
-- published of it. `old_position`: its position among the published traces of these days; null where
-- it was not published with the same time and text. `facts_changed`: its own facts differ.
-- Given: scores (the files of these days), current, compared and unchanged (see changes.sql),
-- and the variable timeline (a path).
COPY (
    WITH old AS NOT MATERIALIZED (
        SELECT *, row_number() OVER (ORDER BY created_at, trace_id) - 1 AS old_position
        FROM $scores
    )
    SELECT $new_own, $old_met, old.old_position, true AS facts_changed
    FROM current AS new
    ANTI JOIN unchanged USING (trace_id)
    LEFT JOIN old
        ON new.trace_id = old.trace_id
        AND new.created_at = old.created_at
        AND new.text_hash = old.text_hash
    UNION ALL
    SELECT $old_own, $old_met, old.old_position, false
    FROM old
    ANTI JOIN (FROM compared WHERE differs) USING (trace_id)
    ORDER BY created_at, trace_id
) TO (getvariable('timeline')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16_384);
