-- Group: novelty
-- Example: FROM repeats('objective_hash') LIMIT 10;
CREATE MACRO repeats(hash) AS TABLE
SELECT
    COLUMNS([hash]),
    count(*) AS traces,
    count(DISTINCT text_hash) AS texts,
    min(created_at) AS first_at,
    max(created_at) AS last_at,
    avg(novelty) AS mean_novelty,
    avg(success::INTEGER) AS success,
    count(*) FILTER (cache_warming_up) AS cache_warming_up,
    min_by(trace_id, (created_at, trace_id)) AS first_trace_id
FROM kp.scores
GROUP BY ALL
HAVING count(*) > 1
ORDER BY traces DESC, COLUMNS([hash]);

COMMENT ON MACRO TABLE repeats IS 'Which objectives (objective_hash) or texts (text_hash) recur? A row is one of them. texts: the number of different texts. success: the success rate.';
