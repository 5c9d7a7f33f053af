-- Group: novelty
-- Example: FROM novelty_by_similarity;
CREATE VIEW novelty_by_similarity AS
SELECT
    CASE
        WHEN max_similarity IS NULL THEN 'empty cache'
        WHEN max_similarity >= 0.999999 THEN 'the same'
        WHEN max_similarity >= 0.95 THEN '0.95 to the same'
        WHEN max_similarity >= 0.8 THEN '0.80 to 0.95'
        WHEN max_similarity >= 0.5 THEN '0.50 to 0.80'
        ELSE 'below 0.50'
    END AS similarity,
    count(*) AS traces,
    count(*) / sum(count(*)) OVER () AS share,
    avg(novelty) AS mean_novelty,
    count(*) FILTER (cache_filling) AS cache_filling,
    avg(nearest_age_s) AS mean_age_s
FROM kp.scores
GROUP BY ALL
ORDER BY mean_novelty;

COMMENT ON VIEW novelty_by_similarity IS 'How many traces are copies, near duplicates or new? By the greatest similarity to their cache; kp-batch redundancy compares with all earlier traces.';
