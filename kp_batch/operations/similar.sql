-- The traces of an encoder with some texts, the most similar first; of equal ones, the oldest.
-- Given, in SQL: scores (the rows of the days of these texts), texts (text_hash and similarity, any
-- number of times); and the variables encoder_id, trace_id (of a trace that is left out; null: none) and most.
SELECT trace_id, created_at, task_domain, score, text_hash, similarity
FROM $scores AS scores
JOIN (SELECT DISTINCT text_hash, similarity FROM $texts) AS texts USING (text_hash)
WHERE encoder_id = getvariable('encoder_id')
    AND trace_id IS DISTINCT FROM getvariable('trace_id')
ORDER BY similarity DESC, created_at, trace_id
LIMIT getvariable('most')
