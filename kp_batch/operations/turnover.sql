-- The numbers of traces of each domain that came, went, and are in both runs, and the sums of their scores: to
-- 15 decimals, so that these are exact in any order.
-- Given: the schemas first and second (the tables of each run), and the table score_changes.
WITH traces AS (
    SELECT
        task_domain,
        first_score::DECIMAL(18, 15) AS first_score,
        second_score::DECIMAL(18, 15) AS second_score
    FROM score_changes
    UNION ALL
    SELECT task_domain, score::DECIMAL(18, 15), NULL
    FROM first.scores
    ANTI JOIN score_changes USING (trace_id)
    UNION ALL
    SELECT task_domain, NULL, score::DECIMAL(18, 15)
    FROM second.scores
    ANTI JOIN score_changes USING (trace_id)
)
SELECT
    task_domain,
    count(*) FILTER (first_score IS NULL) AS came,
    count(*) FILTER (second_score IS NULL) AS went,
    count(first_score + second_score) AS both,
    coalesce(sum(second_score) FILTER (first_score IS NULL), 0) AS came_sum,
    coalesce(sum(first_score) FILTER (second_score IS NULL), 0) AS went_sum,
    coalesce(sum(first_score) FILTER (second_score IS NOT NULL), 0) AS first_sum,
    coalesce(sum(second_score) FILTER (first_score IS NOT NULL), 0) AS second_sum
FROM traces
GROUP BY task_domain
ORDER BY task_domain
