-- Reads the scores of some traces, and the sizes that their files had when they were read.
-- Given: the catalog, the view listed_ids (trace_id and is_first), and scores (SQL for the rows of that table).
CREATE OR REPLACE TEMP TABLE page_traces AS
SELECT
    trace_id,
    task_domain,
    complexity,
    novelty,
    tool_diversity,
    outcome_confidence,
    single_thought,
    recovery_bonus,
    low_diversity_penalty,
    profile_id,
    cache_group,
    cached_vectors,
    n_steps,
    n_tools,
    source_file,
    content_hash,
    is_first,
    coalesce(size, 0) AS size
FROM $scores AS scores
JOIN listed_ids USING (trace_id)
LEFT JOIN (SELECT source_file, size FROM kp.files) AS files USING (source_file);
