-- How many of the traces that state about a confidence succeed, in ten bins.
SELECT
    means.key.domain AS domain,
    means.key.low AS low,
    means.key.low + 0.1 AS high,
    traces,
    tasks,
    confidence,
    success,
    success_low,
    success_high
FROM means({'domain': task_domain, 'low': bin_of(confidence, 10) / 10}) AS means
ORDER BY ALL;
