-- The longest stretch of days without a trace, within the span of all domains.
SELECT
    (before + 1)::VARCHAR AS first_day,
    (day - 1)::VARCHAR AS last_day,
    day - before - 1 AS days
FROM (
    SELECT domain, day, lag(day) OVER (ORDER BY day) AS before
    FROM scores_by_day
    WHERE domain = getvariable('all_domains')
)
JOIN spans USING (domain)
WHERE day - before > 1 AND before >= spans.first_day AND day <= spans.last_day
ORDER BY days DESC, before
LIMIT 1;
