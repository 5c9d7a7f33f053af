-- The published traces that a name may mean: an id, or the beginning of one; what is one comes first.
-- Given: scores (SQL for the rows of some days), and the variable name.
SELECT trace_id, created_at
FROM $scores
WHERE starts_with(trace_id, getvariable('name'))
    OR starts_with(trace_id, 'kp:trace:' || getvariable('name'))
ORDER BY
    trace_id <> getvariable('name'),
    trace_id <> 'kp:trace:' || getvariable('name'),
    trace_id
LIMIT 4;
