-- In which day each trace stands once all files are changed.
SELECT day, id FROM days ANTI JOIN touched USING (id)
UNION ALL
SELECT day, id FROM new
ORDER BY day, id
