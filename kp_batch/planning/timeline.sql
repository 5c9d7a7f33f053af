-- The traces of some days as they are now, in replay order, each with what is published of it.
-- `facts_changed`: its own facts differ.
-- Given: scores (the published files of these days), current, diff and unchanged (see changes.py), and
-- replayed (the ids of the traces that are replayed and stay as they are).
WITH old AS NOT MATERIALIZED (
    FROM $scores
)
SELECT $old_own, $old_met,
    false AS facts_changed,
    trace_id IN (FROM $replayed) AS replay
FROM old
ANTI JOIN (FROM diff WHERE differs) USING (trace_id)
UNION ALL
SELECT $new_own, $old_met,
    true,
    old.trace_id IS NULL OR new.trace_id IN (FROM $replayed)
FROM current AS new
ANTI JOIN unchanged USING (trace_id)
LEFT JOIN old
    ON new.trace_id = old.trace_id
    AND new.created_at = old.created_at
    AND new.text_hash = old.text_hash
    AND new.cache_group IS NOT DISTINCT FROM old.cache_group
ORDER BY created_at, trace_id;
