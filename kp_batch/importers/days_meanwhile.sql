-- In which days a trace may stand while files are changed: where it was, and where it goes.
SELECT day, id FROM days UNION SELECT day, id FROM new ORDER BY day, id
