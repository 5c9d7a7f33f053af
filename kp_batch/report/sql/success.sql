-- How many of the traces of about a score succeed, in ten bins.
SELECT
    means.key.domain AS domain,
    means.key.low AS low,
    means.key.low + 0.1 AS high,
    traces,
    tasks,
    effective_tasks,
    mean,
    success,
    success_low,
    success_high
FROM means({'domain': task_domain, 'low': bin_of(score, 10) / 10}) AS means
LEFT JOIN effective_tasks({'domain': task_domain, 'low': bin_of(score, 10) / 10}) AS effective USING (key)
ORDER BY ALL;
