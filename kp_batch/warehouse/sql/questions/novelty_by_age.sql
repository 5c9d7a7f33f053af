-- Group: novelty
-- Example: FROM novelty_by_age;
CREATE VIEW novelty_by_age AS
WITH banded AS (
    SELECT
        novelty,
        cache_filling,
        CASE
            WHEN nearest_age_s < 60 THEN 0
            WHEN nearest_age_s < 3600 THEN 60
            WHEN nearest_age_s < 86400 THEN 3600
            WHEN nearest_age_s < 604800 THEN 86400
            ELSE 604800
        END AS from_age_s
    FROM kp.scores
    WHERE nearest_age_s IS NOT NULL
)
SELECT
    from_age_s,
    count(*) AS traces,
    avg(novelty) AS mean_novelty,
    count(*) FILTER (cache_filling) AS cache_filling,
    quantile_cont(novelty, 0.5) AS median_novelty
FROM banded
GROUP BY ALL
ORDER BY ALL;

COMMENT ON VIEW novelty_by_age IS 'Is what returns after silence novel again? Novelty by the age of the nearest trace: from 0 s, 1 min, 1 h, 1 day, 1 week.';
