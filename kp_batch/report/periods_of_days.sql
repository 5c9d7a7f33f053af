-- Finds the beginning and the number of the period that contains each day.
-- Given: days (in order) and period (a text).
SELECT date_trunc($period, day)::DATE AS begins, number_of_period($period, begins) AS number
FROM days
ORDER BY day;
