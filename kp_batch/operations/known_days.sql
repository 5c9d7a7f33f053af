-- The days on which traces were made that a name may mean, by the facts: these are few files.
-- Given: the schema published (its tables), and the variable name.
SELECT DISTINCT (created_at AT TIME ZONE 'UTC')::DATE AS day
FROM published.facts
WHERE len(reasons) = 0
    AND (
        starts_with(trace_id, getvariable('name'))
        OR starts_with(trace_id, 'kp:trace:' || getvariable('name'))
    );
