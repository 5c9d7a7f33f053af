-- The means of each scope in steps of time without gaps, over its span. Steps are within the years 1 to 9999,
-- because other years cannot be written.
WITH steps AS (
    SELECT
        domain,
        step::INTERVAL AS step,
        last_day,
        unnest(generate_series(
            date_trunc(grain, first_day::TIMESTAMP), last_day + INTERVAL '23 hours', step::INTERVAL
        )) AS start
    FROM spans
)
SELECT
    steps.domain,
    greatest(steps.start, TIMESTAMP '0001-01-01') AS start,
    least(steps.start + step, TIMESTAMP '9999-12-31') AS "end",
    coalesce(traces, 0) AS traces,
    tasks,
    mean,
    low,
    high,
    share,
    share_low,
    share_high,
    novelty,
    novelty_low,
    novelty_high,
    coalesce(cache_warming_up, 0) AS cache_warming_up,
    coalesce("end" <= getvariable('ended')::TIMESTAMP, true) AS is_over
FROM steps
LEFT JOIN means
    ON (means."by", means.domain, means.start) = ('start', steps.domain, steps.start)
ORDER BY ALL;
