-- Group: novelty
-- Example: FROM repeated_objectives LIMIT 10;
CREATE VIEW repeated_objectives AS
SELECT
    objective_hash,
    count(*) AS traces,
    count(DISTINCT text_hash) AS texts,
    min(created_at) AS first_at,
    max(created_at) AS last_at,
    avg(novelty) AS mean_novelty,
    avg(success::INTEGER) AS success_rate,
    min_by(trace_id, (created_at, trace_id)) AS first_trace_id
FROM kp.scores
GROUP BY objective_hash
HAVING count(*) > 1
ORDER BY traces DESC, objective_hash;

COMMENT ON VIEW repeated_objectives IS 'Which objectives come again and again, in how many texts, and how often with success?';
