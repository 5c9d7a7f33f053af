-- The texts of some traces and of all in their caches' windows, numbered, without repetition.
-- Given: the tables timeline (see sample.sql) and traces (their positions, those of the first
-- traces of their caches, and their texts now), and the variable reach (the largest cache's size).
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
