-- What computed the published scores, by day and domain.
-- Given: the schema published (its tables), and the macros of the catalog.
SELECT
    day_of(created_at) AS day,
    task_domain,
    encoder_id,
    cache_id,
    profile_id,
    count(*) AS traces,
    max(cache_size) AS met
FROM published.scores
GROUP BY ALL
ORDER BY ALL;
