-- Traces by their dates: future (after the day on which the last run ended), else usual, or before or
-- after the usual ones by ten years or more. Where no stretch of days without such a gap has nine
-- tenths of the traces, all that are not future are usual.
WITH days AS (
    SELECT day, sum(traces) AS traces, coalesce(day > getvariable('ended')::DATE, false) AS is_future
    FROM scores_by_day
    GROUP BY day
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
    CASE
        WHEN is_future THEN 'future'
        WHEN day < usual.first_day THEN 'before'
        WHEN day > usual.last_day THEN 'after'
        ELSE 'usual'
    END AS kind,
    sum(traces)::BIGINT AS traces,
    min(day) AS first_day,
    max(day) AS last_day
FROM days
LEFT JOIN usual ON true
GROUP BY kind
ORDER BY first_day;
