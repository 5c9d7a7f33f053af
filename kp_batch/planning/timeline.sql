-- The timeline of some days, in replay order: each trace as the archive has it now, and what is
-- published of it. `was`: its position among the published traces of these days, null where it was
-- not there with the same time and text. `restated`: what it is by itself is new.
COPY (
    WITH old AS (
        SELECT *, row_number() OVER (ORDER BY created_at, trace_id) - 1 AS was
        FROM $scores
    )
    SELECT $new_own, $old_met, old.was, true AS restated
    FROM settled AS new
    SEMI JOIN changed USING (trace_id)
    LEFT JOIN old
        ON new.trace_id = old.trace_id
        AND new.created_at = old.created_at
        AND new.text_hash = old.text_hash
    UNION ALL
    SELECT $old_own, $old_met, old.was, false AS restated
    FROM old
    ANTI JOIN changed USING (trace_id)
    ORDER BY created_at, trace_id
) TO (getvariable('timeline')) (FORMAT parquet, COMPRESSION lz4);
