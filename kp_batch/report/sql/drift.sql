-- How the scores moved from the previous run to the last one, by domain; null: all domains. Empty
-- where their encoders differ: such runs do not compare.
SELECT
    domain,
    traces_a,
    traces_b,
    mean_shift,
    p5_shift,
    p50_shift,
    p95_shift,
    stability_index
FROM drift(getvariable('run_to_compare'), getvariable('last_run')) AS d
LEFT JOIN labels AS l USING (task_domain)
WHERE getvariable('run_to_compare') IS NOT NULL AND (d.task_domain IS NULL OR l.apart)
ORDER BY traces_b DESC, domain NULLS FIRST;
