-- Numbers the texts that have vectors of an encoder, by the time of the first trace of each.
-- Given: the schema published (its tables), and the variable encoder_id.
CREATE TEMP TABLE first_texts AS
SELECT
    row_number() OVER (ORDER BY created_at, trace_id) - 1 AS position,
    text_hash
FROM (
    SELECT
        text_hash,
        min(created_at) AS created_at,
        min_by(trace_id, (created_at, trace_id)) AS trace_id
    FROM published.scores
    WHERE encoder_id = getvariable('encoder_id')
    GROUP BY text_hash
);
