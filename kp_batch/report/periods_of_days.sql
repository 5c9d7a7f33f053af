-- The period that has each day: when it begins, and its number. Given: days, in their order; period, a text.
SELECT date_trunc($period, day)::DATE AS begins, date_diff($period, DATE '2000-01-03', begins) AS number
FROM days
ORDER BY day;
