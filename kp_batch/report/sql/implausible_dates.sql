-- Counts traces whose dates are hardly right. A date is in the future if it is after the day on which the last
-- run ended. Of the others, gaps of ten years or more divide the days into stretches. If one stretch has nine
-- tenths of the traces, dates outside of it are implausible.
WITH days AS (
    SELECT day, traces, coalesce(day > getvariable('ended')::DATE, false) AS is_future
    FROM scores_by_day
    WHERE domain = getvariable('all_domains')
),
past AS (
    SELECT day, traces, day >= lag(day) OVER (ORDER BY day) + INTERVAL 10 YEARS AS begins_stretch
    FROM days
    WHERE NOT is_future
),
stretches AS (
    SELECT day, traces, count(*) FILTER (begins_stretch) OVER (ORDER BY day) AS stretch FROM past
),
usual AS (
    SELECT min(day) AS first_day, max(day) AS last_day
    FROM stretches
    GROUP BY stretch
    HAVING sum(traces) >= 0.9 * (SELECT sum(traces) FROM stretches)
)
SELECT
    CASE WHEN is_future THEN 'future' WHEN day < usual.first_day THEN 'before' ELSE 'after' END AS kind,
    sum(traces)::BIGINT AS traces,
    min(day) AS first_day,
    max(day) AS last_day
FROM days
LEFT JOIN usual ON true
WHERE is_future OR day < usual.first_day OR day > usual.last_day
GROUP BY kind
ORDER BY first_day;
