-- Which share of its own cache a domain had in the period of a told change, and in the four before: of each
-- trace as trace_measures has it, but made of as many traces as the caches of these alone may have held.
-- Given: told; period and step, texts.
WITH days AS (
    SELECT
        (min(begins) - 4 * $step::INTERVAL)::DATE AS first_day,
        (max(begins) + $step::INTERVAL)::DATE AS end_day
    FROM told
),
earlier AS (
    SELECT created_at
    FROM scores, days
    WHERE day_of(created_at) < first_day
    QUALIFY row_number() OVER (PARTITION BY cache_group ORDER BY created_at DESC)
        <= (SELECT max(cache_size) FROM scores)
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
            kp.share_of_cache(cache_group, task_domain, place, cache_size) AS share
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
    WHERE task_domain IN (SELECT value FROM told) AND day_of(created_at) >= first_day
    GROUP BY ALL
)
SELECT
    told.domain,
    told.begins,
    sum(share) FILTER (number = own) / sum(traces) FILTER (number = own) AS cache_share,
    sum(share) FILTER (number < own) / sum(traces) FILTER (number < own) AS cache_share_before
FROM (SELECT *, kp.number_of_period($period, begins) AS own FROM told) AS told
JOIN shares ON task_domain = told.value AND number BETWEEN own - 4 AND own
GROUP BY ALL;
