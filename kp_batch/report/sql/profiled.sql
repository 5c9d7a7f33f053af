-- The domains of which a profile bears the name, as the last two runs left them.
SELECT run_id, task_domain, traces
FROM distributions
WHERE
    run_id IN (getvariable('run_before'), getvariable('last_run'))
    AND task_domain IN (SELECT name FROM profiles)
ORDER BY ALL;
