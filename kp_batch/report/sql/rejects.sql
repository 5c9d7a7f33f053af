-- Rejected rows and files, by reason and by domain; the domain may be unknown or have no scores.
SELECT
    code,
    coalesce(domain, CASE WHEN task_domain IS NULL THEN '(unknown)' ELSE '(never scored)' END)
        AS domain,
    count(*) AS rejected
FROM (SELECT unnest(reasons) AS code, task_domain FROM rejects)
LEFT JOIN labels USING (task_domain)
GROUP BY ALL
ORDER BY ALL;
