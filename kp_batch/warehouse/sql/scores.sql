-- Given: function (a name), scores (SQL for the rows of the table), threshold (a number) and warming_up (a
-- condition).
CREATE OR REPLACE MACRO $function() AS TABLE
SELECT
    trace_id,
    created_at,
    task_domain,
    agent_id,
    framework,
    source_skill,
    success,
    confidence,
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
    cached_vectors,
    cache_group,
    $warming_up AS cache_warming_up,
    n_steps,
    n_tools,
    text_hash,
    objective_hash,
    source_file,
    run_id,
    encoder_id,
    cache_id,
    profile_id
FROM $scores AS trace;

CREATE OR REPLACE VIEW scores AS FROM $function();

COMMENT ON VIEW scores IS 'A row is a trace: its four dimensions, its score, and why it was novel or not.';
