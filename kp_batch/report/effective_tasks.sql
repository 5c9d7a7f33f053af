-- Of traces that are alike in these columns, as many equally often tried tasks as would tell as much: of their
-- doubt, so that of a sample they are the sample's. Given: traces, the view that means asks for the doubt.
CREATE OR REPLACE TEMP MACRO effective_tasks(keys) AS TABLE
SELECT key, pow(sum(n), 2) / sum(n * n) AS effective_tasks
FROM (
    SELECT keys AS key, count(*) AS n
    FROM $traces
    GROUP BY key, objective_hash
)
GROUP BY key;
