-- Finds, for each group, the days that have all traces which a change can affect, and the windows of these
-- traces. A segment is a run of adjacent days. No window has changes of two segments.
-- Given: the schema published (its tables), diff (see changes.py), counts ("rows": how many traces each group
-- has on each day), and the variables stale (days on which all published scores change) and max_window (the
-- greatest number of traces before or after a change that it can affect).
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
        -- Fewer than max_window traces are between this day and a changed day before or after it.
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
