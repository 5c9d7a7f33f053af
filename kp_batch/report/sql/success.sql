-- How many of the traces of about a score succeed, in ten bins.
SELECT
    domain,
    bin / 10 AS low,
    bin / 10 + 0.1 AS high,
    traces,
    tasks,
    effective_tasks,
    mean,
    success,
    success_low,
    success_high
FROM means
WHERE "by" = 'score'
ORDER BY ALL;
