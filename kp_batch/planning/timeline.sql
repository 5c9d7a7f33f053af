-- The timeline of some days, in replay order: the published traces, and what changed. A trace that has
-- another time or text now stands there twice: as it was, `removed`, and as it is, `added`.
-- `facts_changed`: its own facts differ.
-- Given: scores (the files of these days), current, diff and unchanged (see changes.py).
WITH old AS NOT MATERIALIZED (
    FROM $scores
)
SELECT $old_own, $old_met,
    false AS added, false AS removed, false AS facts_changed
FROM old
ANTI JOIN (FROM diff WHERE differs) USING (trace_id)
UNION ALL
SELECT $new_own, $old_met,
    old.trace_id IS NULL, false, true
FROM current AS new
ANTI JOIN unchanged USING (trace_id)
LEFT JOIN old
    ON new.trace_id = old.trace_id
    AND new.created_at = old.created_at
    AND new.text_hash = old.text_hash
UNION ALL
SELECT $old_own, $old_met, false, true, false
FROM old
SEMI JOIN (FROM diff WHERE differs AND NOT in_place) USING (trace_id)
ORDER BY created_at, trace_id;
