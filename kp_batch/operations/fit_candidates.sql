-- Traces of tasks without any label, at most $most, chosen by a hash of their ids, which is the same everywhere.
-- Given: the schema published, and the table labelled (objective_hash).
SELECT
    trace_id,
    task_domain,
    objective_hash,
    complexity,
    novelty,
    tool_diversity,
    outcome_confidence,
    single_thought,
    recovery_bonus,
    low_diversity_penalty,
    score
FROM published.scores
WHERE objective_hash NOT IN (SELECT objective_hash FROM labelled)
ORDER BY md5(trace_id), trace_id
LIMIT $most
