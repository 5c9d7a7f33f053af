-- Rejected rows and files, by reason.
SELECT code, count(*) AS rejected
FROM (SELECT unnest(reasons) AS code FROM rejects)
GROUP BY code
ORDER BY rejected DESC, code;
