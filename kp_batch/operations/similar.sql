-- Lists the traces of an encoder that have some texts, the most similar first, then the oldest.
-- Given, as SQL: scores (the rows of the days of these texts) and texts (text_hash and similarity; rows may
-- repeat). Given as variables: encoder_id, trace_id (a trace to leave out; null: none) and most (how
-- many to list).
SELECT trace_id, created_at, task_domain, score, text_hash, similarity
FROM $scores AS scores
JOIN (SELECT DISTINCT text_hash, similarity FROM $texts) AS texts USING (text_hash)
WHERE encoder_id = getvariable('encoder_id')
    AND trace_id IS DISTINCT FROM getvariable('trace_id')
ORDER BY similarity DESC, created_at, trace_id
LIMIT getvariable('most')
