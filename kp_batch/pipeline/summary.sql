-- How the scores of the domains with the most traces are distributed, and how many domains there are.
-- Given: the catalog, and the parameters run_id (null: the last run that is done) and most.
WITH found AS (
    SELECT *
    FROM distributions
    WHERE
        task_domain IS NOT NULL
        AND run_id = coalesce($run_id, latest())
),
largest AS (
    FROM found ORDER BY traces DESC, task_domain LIMIT $most
)
SELECT
    (SELECT count(*) FROM found) AS domains,
    task_domain,
    traces,
    worth_sharing,
    mean,
    [p5, p25, p50, p75, p95] AS quantiles,
    bins
FROM largest
ORDER BY task_domain;
