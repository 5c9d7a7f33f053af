-- The times from which domains take other weights than before, where they have traces on both sides.
WITH taken AS (
    SELECT
        task_domain,
        if(task_domain IN (SELECT name FROM dated_weights), task_domain, 'default') AS name,
        min(created_at) AS first,
        max(created_at) AS last
    FROM scores_extract
    GROUP BY ALL
)
SELECT DISTINCT name, valid_from
FROM dated_weights
JOIN taken USING (name)
WHERE valid_from > first AND valid_from <= last
ORDER BY ALL;
