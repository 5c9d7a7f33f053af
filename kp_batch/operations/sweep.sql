-- Compares the scores of one cache and some thresholds with the current ones, by domain.
-- Given: files (a relation, see sweep.py), the variables cache (its number), thresholds,
-- current_threshold and tolerance, and the catalog's macros.
WITH swept AS NOT MATERIALIZED (
    SELECT * EXCLUDE (cache) FROM $files WHERE cache = getvariable('cache')
),
means AS (
    SELECT
        task_domain,
        count(*) AS traces,
        score_mean(novelty) AS mean_novelty,
        score_mean(score) AS mean_score,
        count(recorded_score) AS recorded,
        score_mean(abs(score - recorded_score)) AS recorded_error,
        count(*) FILTER (abs(score - recorded_score) <= getvariable('tolerance'))
            / nullif(recorded, 0) AS recorded_share
    FROM swept
    GROUP BY ROLLUP (task_domain)
),
correlated AS (
    SELECT scope, rank_correlation(own_rank, current_rank) AS rank_correlation
    FROM (
        SELECT
            scope,
            average_rank(score, scope) AS own_rank,
            average_rank(current_score, scope) AS current_rank
        FROM (
            SELECT *, task_domain AS scope FROM swept
            UNION ALL
            SELECT *, NULL AS scope FROM swept
        )
    )
    GROUP BY scope
),
reaching AS (
    SELECT
        task_domain,
        threshold,
        count(*) FILTER (reaches) AS at_threshold,
        count(*) FILTER (reaches AND NOT reached) AS now_reach,
        count(*) FILTER (reached AND NOT reaches) AS no_longer_reach
    FROM (
        SELECT
            task_domain,
            threshold,
            score >= threshold AS reaches,
            current_score >= getvariable('current_threshold') AS reached
        FROM swept
        CROSS JOIN (SELECT unnest(getvariable('thresholds')::DOUBLE[]) AS threshold)
    )
    GROUP BY GROUPING SETS ((threshold, task_domain), (threshold))
)
SELECT means.*, rank_correlation, reaching.* EXCLUDE (task_domain)
FROM means
JOIN correlated ON correlated.scope IS NOT DISTINCT FROM means.task_domain
JOIN reaching ON reaching.task_domain IS NOT DISTINCT FROM means.task_domain
ORDER BY threshold;
