-- What the scores are with each combination, by domain, beside those in force.
-- Given: swept (a relation, see sweep_replay.SWEPT), the tables combinations (their place in the
-- order, the number of the cache, the threshold), the variable threshold_in_force, and the catalog's
-- macros.
WITH by_cache AS (
    SELECT
        cache,
        task_domain,
        count(*) AS traces,
        score_mean(novelty) AS mean_novelty,
        score_mean(score) AS mean_score,
        score_mean(score - score_in_force) AS mean_change
    FROM $swept
    GROUP BY GROUPING SETS ((cache, task_domain), (cache))
),
ranked AS (
    SELECT
        cache,
        scope,
        rank() OVER (PARTITION BY cache, scope ORDER BY score)
            + (count(*) OVER (PARTITION BY cache, scope, score) - 1) / 2 AS own_rank,
        rank() OVER (PARTITION BY cache, scope ORDER BY score_in_force)
            + (count(*) OVER (PARTITION BY cache, scope, score_in_force) - 1) / 2 AS rank_in_force
    FROM (
        SELECT *, task_domain AS scope FROM $swept
        UNION ALL
        SELECT *, NULL AS scope FROM $swept
    )
),
correlated AS (
    SELECT
        cache,
        scope,
        -- To 12 decimals for the same reason as score_mean.
        round(nullif(corr(own_rank, rank_in_force), 'nan'::DOUBLE), 12) AS rank_correlation
    FROM ranked
    GROUP BY cache, scope
),
reaching AS (
    SELECT
        place,
        task_domain,
        count(*) FILTER (reaches) AS worth_sharing,
        count(*) FILTER (reaches AND NOT reached) AS now_reach,
        count(*) FILTER (reached AND NOT reaches) AS no_longer_reach
    FROM (
        SELECT
            place,
            task_domain,
            score >= threshold AS reaches,
            score_in_force >= getvariable('threshold_in_force') AS reached
        FROM $swept
        JOIN combinations USING (cache)
    )
    GROUP BY GROUPING SETS ((place, task_domain), (place))
)
SELECT
    by_cache.task_domain,
    combinations.* EXCLUDE (place, cache),
    by_cache.* EXCLUDE (cache, task_domain),
    rank_correlation,
    worth_sharing,
    now_reach,
    no_longer_reach
FROM combinations
JOIN by_cache USING (cache)
JOIN correlated
    ON correlated.cache = by_cache.cache AND scope IS NOT DISTINCT FROM by_cache.task_domain
JOIN reaching
    ON reaching.place = combinations.place
    AND reaching.task_domain IS NOT DISTINCT FROM by_cache.task_domain
ORDER BY by_cache.task_domain NULLS FIRST, combinations.place;
