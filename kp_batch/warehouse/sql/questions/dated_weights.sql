-- Group: what if
-- Example: FROM dated_weights ORDER BY name, valid_from NULLS FIRST;
CREATE VIEW dated_weights AS
WITH by_date AS (
    -- null is the beginning; a profile without times applies from there on.
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

COMMENT ON VIEW dated_weights IS 'Which weights are valid when? A row is a version of a profile, valid from valid_from (null: the beginning) to just before valid_to (null: no end). A trace takes the weights of default if its domain has none at its time.';
