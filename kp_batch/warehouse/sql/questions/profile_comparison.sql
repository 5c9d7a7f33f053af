-- Group: what if
-- Example: FROM profile_comparison WHERE other_profile = 'code' LIMIT 10;
-- `here`: the view answers whatever its catalog is called.
CREATE VIEW profile_comparison AS
WITH weighted AS (
    SELECT
        s.*,
        p.name AS other_profile,
        p.profile_id AS other_profile_id,
        composite(
            s.complexity, s.novelty, s.tool_diversity, s.outcome_confidence,
            p.complexity, p.novelty, p.tool_diversity, p.outcome_confidence
        ) AS other_composite
    FROM scores AS s, profiles AS p
)
SELECT
    trace_id,
    task_domain,
    profile,
    score,
    other_profile,
    other_profile_id,
    here.apply_overrides(other_composite, single_thought, recovery_bonus, low_diversity_penalty)
        AS other_score
FROM weighted;

COMMENT ON VIEW profile_comparison IS 'What would every score be under every weight profile, also those that no score bears? other_profile_id tells apart weights of one name.';
