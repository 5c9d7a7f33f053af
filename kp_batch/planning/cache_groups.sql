-- Counts the cache groups after the run, and the traces that lack one of the values.
-- Given: the schema published (its tables), and diff (see changes.py).
WITH counts AS (
    SELECT
        sum(traces) AS traces,
        len(list_filter(json_extract(cache_group, '$.*'), lambda value: value::VARCHAR = 'null')) > 0
            AS has_null
    FROM (
        SELECT cache_group, count(*) AS traces FROM published.scores GROUP BY ALL
        UNION ALL
        SELECT old_cache_group, -count(*) FROM diff WHERE old_created_at IS NOT NULL GROUP BY ALL
        UNION ALL
        SELECT cache_group, count(*) FROM diff WHERE created_at IS NOT NULL GROUP BY ALL
    )
    GROUP BY cache_group
    HAVING sum(traces) > 0
)
SELECT
    count(*),
    coalesce(sum(traces) FILTER (has_null), 0)::BIGINT
FROM counts;
