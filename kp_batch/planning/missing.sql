SELECT count(DISTINCT trace_id)
FROM published.facts
SEMI JOIN published.files USING (file_id)
ANTI JOIN published.scores USING (trace_id)
WHERE len(reasons) = 0;
