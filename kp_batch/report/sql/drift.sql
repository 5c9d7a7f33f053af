-- The shift of the scores from the previous run to the last one. It is empty if their encoders differ, because
-- such scores are not comparable.
SELECT
    coalesce(domain, getvariable('all_domains')) AS domain,
    traces_a AS traces_before,
    traces_b AS traces,
    mean_shift,
    p5_shift,
    p50_shift,
    p95_shift,
    stability_index
FROM drift(getvariable('run_to_compare'), getvariable('last_run')) AS d
LEFT JOIN labels AS l USING (task_domain)
WHERE getvariable('run_to_compare') IS NOT NULL AND (d.task_domain IS NULL OR l.apart)
ORDER BY traces DESC, domain;
