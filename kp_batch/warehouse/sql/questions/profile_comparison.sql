-- Group: what if
-- Example: FROM profile_comparison WHERE other_profile = 'code' LIMIT 10;
-- The view works whatever the name of its catalog is.
CREATE VIEW profile_comparison AS
WITH weighted AS (
    SELECT
        s.*,
        w.name AS other_profile,
        w.profile_id AS other_profile_id,
        composite(
            s.complexity, s.novelty, s.tool_diversity, s.outcome_confidence,
            w.complexity, w.novelty, w.tool_diversity, w.outcome_confidence
        ) AS other_composite
    FROM kp.scores AS s
    JOIN dated_weights AS w
        ON s.created_at >= coalesce(w.valid_from, '-infinity')
        AND s.created_at < coalesce(w.valid_to, 'infinity')
)
SELECT
    trace_id,
    created_at,
    task_domain,
    profile,
    score,
    other_profile,
    other_profile_id,
    kp.apply_overrides(other_composite, single_thought, recovery_bonus, low_diversity_penalty)
        AS other_score
FROM weighted;

COMMENT ON VIEW profile_comparison IS 'What would every score be under every weight profile, even one that no score uses? A row is a trace and a profile, with the profile''s weights at the time of the trace.';
