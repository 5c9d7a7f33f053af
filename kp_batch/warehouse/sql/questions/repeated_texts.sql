-- Group: novelty
-- Example: FROM repeated_texts LIMIT 10;
CREATE VIEW repeated_texts AS
SELECT
    text_hash,
    count(*) AS traces,
    min(created_at) AS first_at,
    max(created_at) AS last_at,
    avg(novelty) AS mean_novelty,
    count(*) FILTER (cache_filling) AS cache_filling,
    min_by(trace_id, (created_at, trace_id)) AS first_trace_id
FROM kp.scores
GROUP BY text_hash
HAVING count(*) > 1
ORDER BY traces DESC, text_hash;

COMMENT ON VIEW repeated_texts IS 'Which texts come again and again?';
