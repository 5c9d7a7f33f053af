-- The scores that a trace had, the newest first, and what changed each since the one before.
-- Given: the table kept (number and files: each kept run's, of the trace's day) and the variable
-- trace_id; in SQL: rows (of all these files, with the column filename), profiles (of all these
-- runs) and changes (see score_changes.sql, over the following ones).
WITH found AS (
    SELECT number, row.* EXCLUDE (filename)
    FROM kept
    LEFT JOIN (FROM $rows WHERE trace_id = getvariable('trace_id')) AS row
        ON list_contains(files, filename)
),
-- After a run that gave it none, a score may be what it was before.
states AS (
    FROM found
    QUALIFY run_id IS DISTINCT FROM lag(run_id) OVER (ORDER BY number)
),
-- Two runs are compared by the trace's id: here one trace has all states, and each its number.
after AS (
    SELECT * REPLACE (number AS trace_id) FROM states WHERE run_id IS NOT NULL
),
before AS (
    SELECT * REPLACE (lead(number) OVER (ORDER BY number) AS trace_id) FROM after
),
weights AS (SELECT DISTINCT ON (profile_id) * FROM $profiles),
changes AS ($changes)
SELECT number, run_id, after.task_domain, profile, score, changes.* EXCLUDE (trace_id, task_domain)
FROM after
LEFT JOIN changes USING (trace_id)
ORDER BY number DESC
