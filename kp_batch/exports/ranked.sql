-- Ranks the traces of one encoder by score, best first. If traces have the same text, only the best counts.
-- Given: the view read (trace_id, created_at, score, encoder_id, text_hash), and the variable encoder_id.
CREATE OR REPLACE TEMP TABLE ranked AS
SELECT
    trace_id,
    text_hash,
    row_number() OVER (ORDER BY score DESC, created_at, trace_id) - 1 AS position
FROM (  -- positions have no gaps, like those of the vectors
    FROM read
    WHERE encoder_id = getvariable('encoder_id')
    QUALIFY row_number() OVER (PARTITION BY text_hash ORDER BY score DESC, created_at, trace_id) = 1
);
