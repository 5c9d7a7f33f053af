-- Counts the published scores by the ids of their encoder, cache and weights, by day and domain. A day on which
-- weights change is divided at these times.
-- Given: the schema published (its tables), the macros of the catalog, and moments (the times within a day at
-- which weights change).
WITH spans AS (
    SELECT
        day_of(moment) AS day,
        moment AS first,
        lead(moment, 1, 'infinity') OVER (ORDER BY moment) AS next
    FROM moments
),
-- Rows are counted before the join, which then has few.
within AS (
    SELECT
        day_of(created_at) AS day,
        CASE WHEN day IN (SELECT day FROM spans) THEN created_at END AS moment,
        task_domain,
        encoder_id,
        cache_id,
        profile_id,
        count(*) AS traces,
        max(cached_vectors) AS max_window
    FROM published.scores
    GROUP BY ALL
)
SELECT
    within.day,
    -- The same weights apply from this time until that of the next group.
    coalesce(spans.first, within.day::TIMESTAMP AT TIME ZONE 'UTC') AS created_at,
    task_domain,
    encoder_id,
    cache_id,
    profile_id,
    sum(traces)::BIGINT AS traces,
    max(max_window) AS max_window
FROM within
LEFT JOIN spans ON spans.day = within.day AND moment >= spans.first AND moment < spans.next
GROUP BY ALL
ORDER BY ALL;
