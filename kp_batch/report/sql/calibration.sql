-- How many of the traces that state about a confidence succeed, in ten bins.
SELECT
    domain,
    bin / 10 AS low,
    bin / 10 + 0.1 AS high,
    traces,
    tasks,
    confidence,
    success,
    success_low,
    success_high
FROM means
WHERE "by" = 'confidence'
ORDER BY ALL;
