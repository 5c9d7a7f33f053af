-- The share of traces that succeed, in each of ten bins of the score.
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
