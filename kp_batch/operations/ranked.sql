-- The traces of one encoder that were read again, the best first; of those with one text, the best.
-- Given: the views chosen (see chosen.sql) and read, and the variable encoder_id.
CREATE OR REPLACE TEMP TABLE ranked AS
SELECT
    trace_id,
    text_hash,
    row_number() OVER (ORDER BY score DESC, created_at, trace_id) - 1 AS position
FROM chosen
SEMI JOIN read USING (trace_id)
WHERE encoder_id = getvariable('encoder_id')
QUALIFY row_number() OVER (PARTITION BY text_hash ORDER BY score DESC, created_at, trace_id) = 1;
