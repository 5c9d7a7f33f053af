-- The tasks that more than one in 500 traces of a label are about: a sample of tasks has all of these traces
-- or none. Counted by few numbers first, as there may be millions of tasks. Given: scores_extract and labels.
CREATE OR REPLACE TEMP TABLE frequent_tasks AS
WITH traces AS (
    SELECT domain, objective_hash, objective_hash % 16384 AS bucket
    FROM scores_extract
    JOIN labels USING (task_domain)
),
buckets AS (
    SELECT domain, bucket, sum(count(*)) OVER (PARTITION BY domain) AS all_of
    FROM traces
    GROUP BY domain, bucket
    QUALIFY count(*) > greatest(20, all_of / 500)
)
SELECT DISTINCT objective_hash
FROM traces
JOIN buckets USING (domain, bucket)
GROUP BY domain, objective_hash, all_of
HAVING count(*) > greatest(20, all_of / 500);
