-- Group: novelty
-- Example: FROM near_repeats(0.99) LIMIT 10;
-- Equal texts are compared as texts, because rounding may leave their cosine just below 1.
CREATE MACRO near_repeats(similarity) AS TABLE
SELECT trace_id, task_domain, created_at, max_similarity, nearest_trace_id, nearest_age_s, score
FROM kp.scores
WHERE max_similarity >= similarity
    OR (similarity <= 1 AND (nearest_trace_id, text_hash) IN (SELECT (trace_id, text_hash) FROM kp.scores))
ORDER BY max_similarity DESC, trace_id;

COMMENT ON MACRO TABLE near_repeats IS 'Which traces are at least this similar to one in their cache, and to which? A row is such a trace. Equal texts have similarity 1. kp-batch redundancy compares with all earlier traces.';
