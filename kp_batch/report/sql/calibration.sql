-- The share of traces that succeed, in each of ten bins of stated confidence.
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
