-- The times at which the weights of a domain change, if the domain has traces before and after.
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
