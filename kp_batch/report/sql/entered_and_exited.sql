-- The domains that entered or exited between the previous run and the last one.
WITH before AS (
    FROM distributions WHERE run_id = getvariable('run_before') AND task_domain IS NOT NULL
),
now AS (
    FROM distributions WHERE run_id = getvariable('last_run') AND task_domain IS NOT NULL
)
SELECT task_domain, now.run_id IS NOT NULL AS is_new
FROM before
FULL JOIN now USING (task_domain)
WHERE getvariable('run_before') IS NOT NULL AND (before.run_id IS NULL OR now.run_id IS NULL)
ORDER BY is_new, coalesce(before.traces, now.traces) DESC, task_domain;
