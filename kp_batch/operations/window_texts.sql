-- Numbers the distinct texts of some traces and of all traces in their windows.
-- Given: the table timeline (see sample.sql), the table traces (the position of each trace, that of the first
-- trace of its cache, and its current text), and the variable reach (the size of the largest cache).
CREATE OR REPLACE TEMP TABLE window_texts AS
SELECT text_hash, row_number() OVER () AS position
FROM (
    SELECT text_hash
    FROM timeline
    SEMI JOIN (
        SELECT unnest(range(greatest(position - getvariable('reach'), first), position)) AS position
        FROM traces
    ) AS windows USING (position)
    UNION
    SELECT text_hash_now FROM traces
);
