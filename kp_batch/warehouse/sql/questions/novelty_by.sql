-- Group: novelty
-- Example: FROM novelty_by('age');
CREATE MACRO novelty_by(what) AS TABLE
WITH banded AS (
    SELECT
        novelty,
        cache_warming_up,
        CASE what
            WHEN 'age' THEN CASE
                WHEN nearest_age_s IS NULL THEN NULL
                WHEN nearest_age_s < 60 THEN 1
                WHEN nearest_age_s < 3600 THEN 2
                WHEN nearest_age_s < 86400 THEN 3
                WHEN nearest_age_s < 604800 THEN 4
                ELSE 5
            END
            WHEN 'similarity' THEN CASE
                WHEN max_similarity IS NULL THEN 6
                WHEN max_similarity >= 0.999999 THEN 1
                WHEN max_similarity >= 0.95 THEN 2
                WHEN max_similarity >= 0.8 THEN 3
                WHEN max_similarity >= 0.5 THEN 4
                ELSE 5
            END
            WHEN 'repetition' THEN least(
                row_number() OVER (PARTITION BY text_hash ORDER BY created_at, trace_id), 11
            )
            ELSE error('novelty goes by age, similarity or repetition')
        END AS band
    FROM kp.scores
),
grouped AS (
    SELECT
        band AS number,
        count(*) AS traces,
        avg(novelty) AS mean_novelty,
        quantile_cont(novelty, 0.5) AS median_novelty,
        min(novelty) AS least_novelty,
        max(novelty) AS greatest_novelty,
        count(*) FILTER (cache_warming_up) AS cache_warming_up
    FROM banded
    WHERE band IS NOT NULL
    GROUP BY band
)
SELECT
    CASE what
        WHEN 'age' THEN [
            'below 1 minute', '1 minute to 1 hour', '1 hour to 1 day', '1 day to 1 week',
            '1 week or more'
        ]
        WHEN 'similarity' THEN [
            'the same', '0.95 to the same', '0.80 to 0.95', '0.50 to 0.80', 'below 0.50',
            'empty cache'
        ]
        ELSE ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '10 or more']
    END[number] AS band,
    traces,
    traces / sum(traces) OVER () AS share,
    * EXCLUDE (number, traces)
FROM grouped
ORDER BY number;

COMMENT ON MACRO TABLE novelty_by IS 'How does novelty depend on earlier traces? The parameter what is age (how much older the nearest trace in the cache is), similarity (to that trace), or repetition (how often the same text came before, at any time). A row is a band of it.';
