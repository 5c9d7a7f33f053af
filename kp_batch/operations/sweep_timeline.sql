-- All published traces in replay order, with what their scores come from besides their novelty.
-- Given: the schema published (its tables), and the variable replay (a path).
COPY (
    SELECT
        created_at,
        text_hash,
        task_domain,
        complexity,
        tool_diversity,
        outcome_confidence,
        single_thought,
        recovery_bonus,
        low_diversity_penalty
    FROM published.scores
    ORDER BY created_at, trace_id
) TO (getvariable('replay')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16_384);
