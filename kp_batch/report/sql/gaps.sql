-- Stretches of days without a trace, the longest first; within the days from first_day to last_day.
SELECT first_day::VARCHAR AS first_day, last_day::VARCHAR AS last_day, days
FROM days_without_traces
WHERE first_day >= getvariable('first_day')::DATE AND last_day <= getvariable('last_day')::DATE
ORDER BY days DESC, first_day;
