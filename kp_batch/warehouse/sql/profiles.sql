-- Given: profiles, the SQL for the rows of the table.
CREATE VIEW profiles AS
SELECT
    profile_id,
    name,
    complexity,
    novelty,
    tool_diversity,
    outcome_confidence
FROM $profiles;

COMMENT ON VIEW profiles IS 'The weights of every profile_id that the last run had loaded, or that a current score bears.';
