-- For each group, the days with all traces that a change in the group can affect, and with their windows.
-- Days of one segment are adjacent; no window has changes of different segments.
-- Given: the schema published (its tables), diff (see changes.py), counts (how many traces each group has on
-- each day, "rows"), and the variables stale (days on which all published scores change) and max_window (at
-- most so many traces before and after a change can be affected).
CREATE TEMP TABLE segments AS
WITH changed AS (
    SELECT cache_group, day_of(created_at) AS day
    FROM diff
    WHERE NOT in_place AND created_at IS NOT NULL
    UNION
    SELECT old_cache_group, day_of(old_created_at)
    FROM diff
    WHERE NOT in_place AND old_created_at IS NOT NULL
    UNION
    SELECT cache_group, day_of(created_at)
    FROM published.tombstones
),
days AS (
    SELECT cache_group, day, sum("rows") AS "rows", bool_or(has_changed) AS has_changed
    FROM (
        SELECT cache_group, day, "rows", day IN (SELECT unnest(getvariable('stale')::DATE[])) AS has_changed
        FROM $counts
        UNION ALL
        SELECT cache_group, day, 0, true FROM changed
    )
    GROUP BY ALL
),
counted AS (
    SELECT *, coalesce(sum("rows") OVER earlier, 0) AS first, first + "rows" AS last
    FROM days
    WINDOW earlier AS (
        PARTITION BY cache_group ORDER BY day ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
near AS (
    SELECT
        *,
        -- Fewer traces than max_window are between the day and a changed one before or after it.
        first - max(last) FILTER (has_changed) OVER upwards < getvariable('max_window')
        OR min(first) FILTER (has_changed) OVER downwards - last < getvariable('max_window') AS is_near
    FROM counted
    WINDOW
        upwards AS (PARTITION BY cache_group ORDER BY day),
        downwards AS (PARTITION BY cache_group ORDER BY day DESC)
),
gaps AS (
    SELECT
        cache_group,
        day,
        coalesce(is_near, false) AS is_near,
        count(*) FILTER (NOT coalesce(is_near, false)) OVER (PARTITION BY cache_group ORDER BY day)
            AS gap
    FROM near
)
SELECT
    cache_group,
    day,
    dense_rank() OVER (ORDER BY cache_group NULLS FIRST, gap) AS segment
FROM gaps
WHERE is_near;
