-- In which day each trace stands once all files are changed.
SELECT day, id, 0 AS turn FROM days ANTI JOIN stands USING (day, id)
UNION ALL
SELECT day, id, 0 FROM new
ORDER BY day, id
