-- The distributions of the scores of the domains with the most traces, and the number of all domains.
-- Given: the catalog, and the parameters run_id (null: the last run that is done) and most.
WITH by_domain AS (
    SELECT *
    FROM distributions
    WHERE
        task_domain IS NOT NULL
        AND run_id = coalesce($run_id, latest())
),
largest AS (
    FROM by_domain ORDER BY traces DESC, task_domain LIMIT $most
)
SELECT
    (SELECT count(*) FROM by_domain) AS domains,
    task_domain,
    traces,
    worth_sharing,
    mean,
    [p5, p25, p50, p75, p95] AS quantiles,
    bins
FROM largest
ORDER BY task_domain;
