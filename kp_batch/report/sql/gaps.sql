-- Stretches of days without a trace, the longest first.
SELECT first_day::VARCHAR AS first_day, last_day::VARCHAR AS last_day, days
FROM days_without_traces
ORDER BY days DESC, first_day;
