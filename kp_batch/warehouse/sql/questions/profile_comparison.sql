CREATE VIEW profile_comparison AS
WITH weighted AS (
    SELECT
        s.*,
        p.name AS other_profile,
        p.profile_id AS other_profile_id,
        s.complexity * p.complexity + s.novelty * p.novelty + s.tool_diversity * p.tool_diversity
            + s.outcome_confidence * p.outcome_confidence AS other_composite
    FROM scores AS s, profiles AS p
),
raised AS (
    SELECT
        *,
        CASE WHEN single_thought THEN 0.1 ELSE other_composite END AS start,
        CASE WHEN recovery_bonus THEN least(1, start + 0.1) ELSE start END AS before_penalty
    FROM weighted
)
SELECT
    trace_id,
    task_domain,
    profile,
    score,
    other_profile,
    other_profile_id,
    CASE WHEN low_diversity_penalty THEN greatest(0, before_penalty - 0.1) ELSE before_penalty END
        AS other_score
FROM raised;

COMMENT ON VIEW profile_comparison IS 'What would every score be under every weight profile, also those that no score bears? other_profile_id tells apart weights of one name.';
