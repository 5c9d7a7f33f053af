-- Lists the scores that a trace had, the newest first, and the parts of each change.
-- Given: the table kept (the number of each kept run, and its files of the trace's day) and the variable
-- trace_id. Given as SQL: rows (of all these files, with the column filename), profiles (of all these runs)
-- and changes (the query of score_changes.sql, over `before`, `after` and `weights` below).
WITH found AS (
    SELECT number, row.* EXCLUDE (filename)
    FROM kept
    LEFT JOIN (FROM $rows WHERE trace_id = getvariable('trace_id')) AS row
        ON list_contains(files, filename)
),
-- Runs that left the score unchanged are dropped. A score may return after a run in which there was none.
states AS (
    FROM found
    QUALIFY run_id IS DISTINCT FROM lag(run_id) OVER (ORDER BY number)
),
-- score_changes.sql joins by trace_id. Here all states belong to one trace, so their numbers are the ids.
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
