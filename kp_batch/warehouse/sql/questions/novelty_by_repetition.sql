-- Group: novelty
-- Example: FROM novelty_by_repetition;
CREATE VIEW novelty_by_repetition AS
WITH counted AS (
    SELECT
        novelty,
        cache_filling,
        row_number() OVER (PARTITION BY text_hash ORDER BY created_at, trace_id) - 1 AS before
    FROM kp.scores
)
SELECT
    least(before, 10) AS times_before,
    count(*) AS traces,
    avg(novelty) AS mean_novelty,
    count(*) FILTER (cache_filling) AS cache_filling,
    min(novelty) AS least_novelty,
    max(novelty) AS greatest_novelty
FROM counted
GROUP BY ALL
ORDER BY ALL;

COMMENT ON VIEW novelty_by_repetition IS 'How does novelty fall with repetition? By how often the same text came before; 10 means 10 or more.';
