-- Group: what if
-- Example: FROM dated_weights ORDER BY name, valid_from NULLS FIRST;
CREATE VIEW dated_weights AS
WITH by_date AS (
    -- null is the beginning. A profile without times applies from the beginning.
    SELECT * EXCLUDE (valid_from), unnest(coalesce(valid_from, [NULL])) AS valid_from FROM kp.profiles
)
SELECT
    name,
    valid_from,
    lead(valid_from) OVER (PARTITION BY name ORDER BY valid_from NULLS FIRST) AS valid_to,
    profile_id,
    complexity,
    novelty,
    tool_diversity,
    outcome_confidence
FROM by_date;

COMMENT ON VIEW dated_weights IS 'Which weights are valid when? They apply from valid_from (null: from the beginning) to just before valid_to (null: without end). Traces of a domain without weights at their time use those of default.';
