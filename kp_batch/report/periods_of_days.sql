-- The period that has each day: when it begins, and its number. Given: days, in their order; period, a text.
SELECT date_trunc($period, day)::DATE AS begins, number_of_period($period, begins) AS number
FROM days
ORDER BY day;
