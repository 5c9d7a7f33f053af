-- Given: profiles, the SQL for the rows of the table.
CREATE VIEW profiles AS
SELECT
    profile_id,
    name,
    complexity,
    novelty,
    tool_diversity,
    outcome_confidence,
    valid_from
FROM $profiles;

COMMENT ON VIEW profiles IS 'The weights of every profile_id of the settings; valid_from: the times from which they hold, null from the beginning.';
