-- Computes the mean share of a domain in its own cache, in the period of a change and in the previous four.
-- The view trace_measures has the same shares, but reads all traces, which takes 1.8 s per million. This query
-- reads only the traces of these periods, and earlier ones that may have been in their caches.
-- Given: the table asked, and the texts period and step.
WITH days AS (
    SELECT
        (min(begins) - 4 * $step::INTERVAL)::DATE AS first_day,
        (max(begins) + $step::INTERVAL)::DATE AS end_day
    FROM asked
),
earlier AS (
    SELECT created_at
    FROM scores, days
    WHERE day_of(created_at) < first_day
    QUALIFY row_number() OVER (PARTITION BY cache_group ORDER BY created_at DESC)
        <= (SELECT max(cached_vectors) FROM scores)
),
shares AS (
    SELECT
        task_domain,
        kp.number_of_period($period, date_trunc($period, day_of(created_at))::DATE) AS number,
        count(*) AS traces,
        sum(share) AS share
    FROM (
        SELECT
            *,
            kp.share_of_cache(cache_group, task_domain, place, cached_vectors) AS share
        FROM (
            SELECT
                *,
                row_number() OVER (PARTITION BY cache_group ORDER BY created_at, trace_id) AS place
            FROM scores
            WHERE created_at >= coalesce(
                (SELECT min(created_at) FROM earlier), '-infinity'::TIMESTAMPTZ
            )
            AND day_of(created_at) < (SELECT end_day FROM days)
        )
    ), days
    WHERE task_domain IN (SELECT value FROM asked) AND day_of(created_at) >= first_day
    GROUP BY ALL
)
SELECT
    asked.domain,
    asked.begins,
    sum(share) FILTER (number = own) / sum(traces) FILTER (number = own) AS cache_share,
    sum(share) FILTER (number < own) / sum(traces) FILTER (number < own) AS cache_share_before
FROM (SELECT *, kp.number_of_period($period, begins) AS own FROM asked) AS asked
JOIN shares ON task_domain = asked.value AND number BETWEEN own - 4 AND own
GROUP BY ALL;
