-- Traces and the sums of their scores and novelty, in steps of time without gaps; domains add up.
-- Of the days from first_day to last_day.
WITH sums AS (
    SELECT
        date_trunc(getvariable('grain'), day)::DATE AS start,
        task_domain AS domain,
        sum(traces)::BIGINT AS traces,
        sum(mean * traces) AS score,
        sum(novelty * traces) AS novelty
    FROM scores_by_day
    WHERE day BETWEEN getvariable('first_day')::DATE AND getvariable('last_day')::DATE
    GROUP BY ALL
),
steps AS (
    SELECT unnest(generate_series(min(start), max(start), getvariable('step')::INTERVAL))::DATE AS start
    FROM sums
)
SELECT
    strftime(start, '%Y-%m-%d') AS start,
    strftime(start + getvariable('step')::INTERVAL, '%Y-%m-%d') AS "end",
    domain,
    coalesce(traces, 0) AS traces,
    round(score, 6) AS score,
    round(novelty, 6) AS novelty,
    start + getvariable('step')::INTERVAL <= getvariable('last_day')::DATE + 1 AS is_over
FROM steps
CROSS JOIN (SELECT DISTINCT domain FROM labels)
LEFT JOIN sums USING (start, domain)
ORDER BY ALL;
