-- Given: function (a name) and profiles (SQL for the rows of the table).
CREATE OR REPLACE MACRO $function() AS TABLE
SELECT
    profile_id,
    name,
    complexity,
    novelty,
    tool_diversity,
    outcome_confidence,
    valid_from
FROM $profiles;

CREATE OR REPLACE VIEW profiles AS FROM $function();

COMMENT ON VIEW profiles IS 'A row is a profile_id and its weights; valid_from: the times from which they are valid, null from the beginning.';
