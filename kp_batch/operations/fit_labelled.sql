-- The labelled traces, by id: what their scores are made of, and what labels may repeat.
-- Given: the schema published, and the table labels (trace_id, label, weight).
SELECT
    trace_id,
    task_domain,
    label,
    weight,
    objective_hash,
    epoch_us(created_at) AS created_us,
    complexity,
    novelty,
    tool_diversity,
    outcome_confidence,
    single_thought,
    recovery_bonus,
    low_diversity_penalty,
    score,
    success::DOUBLE AS success,
    confidence,
    nullif(recorded_score, 0) AS recorded_score
FROM published.scores
JOIN labels USING (trace_id)
ORDER BY trace_id
