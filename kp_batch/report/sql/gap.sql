-- The longest stretch of days without a trace, within the span of all domains.
SELECT gaps.first_day::VARCHAR AS first_day, gaps.last_day::VARCHAR AS last_day, days
FROM days_without_traces AS gaps
JOIN spans
    ON domain = getvariable('all_domains')
    AND gaps.first_day >= spans.first_day AND gaps.last_day <= spans.last_day
ORDER BY days DESC, gaps.first_day
LIMIT 1;
