-- The distribution of the scores in each scope, how far its means can be trusted, and how novel it is.
SELECT
    own.domain,
    means.* EXCLUDE (key),
    p5,
    p25,
    p50,
    p75,
    p95,
    repeats,
    novelty_filling,
    novelty_after,
    deviation
FROM (
    SELECT
        task_domain AS domain,
        score_quantiles(score) AS quantiles,
        quantiles[1] AS p5,
        quantiles[2] AS p25,
        quantiles[3] AS p50,
        quantiles[4] AS p75,
        quantiles[5] AS p95,
        count(*) FILTER (max_similarity >= 0.95) / count(*) AS repeats,
        avg(novelty) FILTER (cache_filling) AS novelty_filling,
        avg(novelty) FILTER (NOT cache_filling) AS novelty_after,
        stddev_pop(score) AS deviation
    FROM scoped
    GROUP BY ALL
) AS own
JOIN means({'domain': task_domain}) AS means ON means.key.domain = own.domain
ORDER BY
    own.domain <> getvariable('all_domains'),
    own.domain IS NOT DISTINCT FROM getvariable('others'),
    traces DESC,
    own.domain;
