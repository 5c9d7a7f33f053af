-- Group: novelty
-- Example: FROM redundancy;
CREATE VIEW redundancy AS
SELECT
    json_extract_string(redundancy, '/similarity')::DOUBLE AS similarity,
    json_extract_string(redundancy, '/encoder_id') AS encoder_id,
    json_extract_string(redundancy, '/traces')::BIGINT AS traces,
    json_extract_string(redundancy, '/other_encoders')::BIGINT AS other_encoders,
    json_extract_string(redundancy, '/same_text')::BIGINT AS same_text,
    json_extract_string(redundancy, '/same_objective')::BIGINT AS same_objective,
    json_extract_string(redundancy, '/compared')::BIGINT AS compared,
    json_extract_string(redundancy, '/repeats')::BIGINT AS repeats,
    json_extract_string(redundancy, '/share')::DOUBLE AS share,
    json_extract_string(redundancy, '/low')::DOUBLE AS low,
    json_extract_string(redundancy, '/high')::DOUBLE AS high
FROM manifest
WHERE redundancy IS NOT NULL;

COMMENT ON VIEW redundancy IS 'Which share of the traces nearly repeats any earlier one? As kp-batch redundancy found it, with a 95% interval; empty until it is asked again, once anything is published after it.';
