-- The times from which domains take other weights than before, where they have traces on both sides.
WITH taken AS (
    SELECT
        if(task_domain IN (SELECT name FROM dated_weights), task_domain, 'default') AS name,
        first,
        last
    FROM by_domain
)
SELECT DISTINCT name, valid_from
FROM dated_weights
JOIN taken USING (name)
WHERE valid_from > first AND valid_from <= last
ORDER BY ALL;
