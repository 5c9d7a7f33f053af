-- In which days a trace may stand while files are changed: where it was, and where it goes.
WITH
    goes AS (SELECT day, id, (SELECT coalesce(max(turn), 0) + 1 FROM days) AS turn FROM new)
SELECT day, id, max(turn) AS turn
FROM (SELECT day, id, turn FROM days UNION ALL FROM goes)
GROUP BY day, id
ORDER BY day, id
