-- What computed the published scores, by day and domain.
-- Given: the schema published (its tables).
SELECT
    (created_at AT TIME ZONE 'UTC')::DATE AS day,
    task_domain,
    encoder_id,
    cache_id,
    profile_id,
    count(*) AS traces,
    max(cache_size) AS met
FROM published.scores
GROUP BY ALL
ORDER BY ALL;
