-- Given: scores, the SQL for the rows of the table, and threshold, a number.
CREATE VIEW scores AS
SELECT
    trace_id,
    created_at,
    task_domain,
    agent_id,
    framework,
    source_skill,
    success,
    profile,
    complexity,
    novelty,
    tool_diversity,
    outcome_confidence,
    composite,
    single_thought,
    recovery_bonus,
    low_diversity_penalty,
    score,
    score >= $threshold AS meets_threshold,
    recorded_score,
    max_similarity,
    nearest_trace_id,
    nearest_age_s,
    cache_size,
    cache_group,
    n_steps,
    n_tools,
    text_hash,
    source_file,
    run_id,
    encoder_id,
    cache_id,
    profile_id
FROM $scores;

COMMENT ON VIEW scores IS 'One row a trace: its four dimensions, its score, and why it was novel or not.';
