-- Lists the current traces of some days in time order, each with its published columns.
-- `facts_changed`: whether its facts differ from the published ones.
-- Given: scores (the published files of these days), current, diff and unchanged (see changes.py), and
-- replayed (the ids of traces to replay, in addition to new or replaced ones).
WITH old AS NOT MATERIALIZED (
    FROM $scores
)
SELECT traces.*, is_new OR replayed.trace_id IS NOT NULL AS replay
FROM (
    SELECT $old_own, $old_scored, false AS is_new, false AS facts_changed
    FROM old
    ANTI JOIN (FROM diff WHERE differs) USING (trace_id)
    UNION ALL
    SELECT $new_own, $old_scored, old.trace_id IS NULL, true
    FROM current AS new
    ANTI JOIN unchanged USING (trace_id)
    LEFT JOIN old
        ON new.trace_id = old.trace_id
        AND new.created_at = old.created_at
        AND new.text_hash = old.text_hash
        AND new.cache_group IS NOT DISTINCT FROM old.cache_group
) AS traces
LEFT JOIN $replayed AS replayed ON replayed.trace_id = traces.trace_id
ORDER BY created_at, traces.trace_id;
