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

COMMENT ON VIEW profiles IS 'The weights of every profile_id of the settings; valid_from: the times from which they hold, null from the beginning.';
