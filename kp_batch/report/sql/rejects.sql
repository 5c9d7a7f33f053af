-- What is refused, by code, and by domain where the refused row says it.
WITH told AS (
    SELECT
        unnest(reasons) AS code,
        CASE WHEN json_valid(raw) THEN raw->>'$.metadata.task_domain' END AS task_domain
    FROM rejects
)
SELECT code, domain, count(*) AS refused
FROM told
LEFT JOIN labels USING (task_domain)
GROUP BY ALL
ORDER BY ALL;
