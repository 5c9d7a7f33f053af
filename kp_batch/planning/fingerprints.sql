-- What computed the published scores, by day, domain and the times from which weights hold.
-- Given: the schema published (its tables), the macros of the catalog, and moments (those of these
-- times that no day begins with).
WITH spans AS (
    SELECT
        day_of(moment) AS day,
        moment AS first,
        lead(moment, 1, 'infinity') OVER (ORDER BY moment) AS next
    FROM moments
),
scores AS (
    SELECT
        day_of(created_at) AS day,
        -- A time from which on, and until that of the next group, the same weights hold.
        coalesce(spans.first, day_of(created_at)::TIMESTAMP AT TIME ZONE 'UTC') AS created_at,
        task_domain, encoder_id, cache_id, profile_id, cache_size
    FROM published.scores AS s
    LEFT JOIN spans
        ON spans.day = day_of(s.created_at)
        AND s.created_at >= spans.first
        AND s.created_at < spans.next
)
SELECT
    day,
    created_at,
    task_domain,
    encoder_id,
    cache_id,
    profile_id,
    count(*) AS traces,
    max(cache_size) AS met
FROM scores
GROUP BY ALL
ORDER BY ALL;
