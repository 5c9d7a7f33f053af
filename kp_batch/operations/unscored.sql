-- How many traces of the archive have no score. Given: the schema published (its tables).
SELECT count(DISTINCT trace_id)
FROM published.facts
SEMI JOIN published.files USING (file_id)
ANTI JOIN published.scores USING (trace_id)
WHERE len(reasons) = 0;
