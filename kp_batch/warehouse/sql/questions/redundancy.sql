-- Group: novelty
-- Example: FROM redundancy;
CREATE VIEW redundancy AS
SELECT
    json_extract_string(redundancy, '/similarity')::DOUBLE AS similarity,
    json_extract_string(redundancy, '/encoder_id') AS encoder_id,
    json_extract_string(redundancy, '/traces')::BIGINT AS traces,
    json_extract_string(redundancy, '/other_encoders')::BIGINT AS other_encoders,
    json_extract_string(redundancy, '/exact_repeats')::BIGINT AS exact_repeats,
    json_extract_string(redundancy, '/near_repeats')::BIGINT AS near_repeats,
    json_extract_string(redundancy, '/all_repeats')::BIGINT AS all_repeats,
    json_extract_string(redundancy, '/share')::DOUBLE AS share,
    json_extract_string(redundancy, '/low')::DOUBLE AS low,
    json_extract_string(redundancy, '/high')::DOUBLE AS high,
    json_extract_string(redundancy, '/same_objective')::BIGINT AS same_objective,
    json_extract_string(redundancy, '/compared')::BIGINT AS compared
FROM manifest
WHERE redundancy IS NOT NULL;

COMMENT ON VIEW redundancy IS 'Which share of the traces repeats any earlier one, exactly or nearly? As kp-batch redundancy found it, with a 95% interval of the share of all repeats; empty until it is asked again, once anything is published after it.';
