-- Where traces stand that are replaced or go: all that were read now; and of those that were on
-- their way when an import was killed, what stands anywhere but where the last one has put them.
WITH
    stays AS (SELECT arg_max(day, turn) AS day, id FROM held GROUP BY id)
SELECT day, id FROM days SEMI JOIN touched USING (id)
UNION ALL
SELECT day, id FROM moving ANTI JOIN stays USING (day, id)
