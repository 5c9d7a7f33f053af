-- Rejected rows and files, by reason and by domain; the domain may be unknown or have no scores.
WITH told AS (
    SELECT
        unnest(reasons) AS code,
        CASE WHEN json_valid(raw) THEN raw->>'$.metadata.task_domain' END AS task_domain
    FROM rejects
)
SELECT
    code,
    coalesce(domain, CASE WHEN task_domain IS NULL THEN '(unknown)' ELSE '(never scored)' END)
        AS domain,
    count(*) AS rejected
FROM told
LEFT JOIN labels USING (task_domain)
GROUP BY ALL
ORDER BY ALL;
