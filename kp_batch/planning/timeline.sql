-- The timeline of some days, in replay order: each trace as the archive has it now, and what is
-- published of it. `old_position`: its position among the published traces of these days; null where
-- it was not published with the same time and text. `facts_changed`: its own facts differ.
-- Given: the tables current and changed (see changes.sql), and the variable timeline (a path).
COPY (
    WITH old AS (
        SELECT *, row_number() OVER (ORDER BY created_at, trace_id) - 1 AS old_position
        FROM $scores
    )
    SELECT $new_own, $old_met, old.old_position, true AS facts_changed
    FROM current AS new
    SEMI JOIN changed USING (trace_id)
    LEFT JOIN old
        ON new.trace_id = old.trace_id
        AND new.created_at = old.created_at
        AND new.text_hash = old.text_hash
    UNION ALL
    SELECT $old_own, $old_met, old.old_position, false AS facts_changed
    FROM old
    ANTI JOIN changed USING (trace_id)
    ORDER BY created_at, trace_id
) TO (getvariable('timeline')) (FORMAT parquet, COMPRESSION lz4);
