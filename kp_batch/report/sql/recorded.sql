-- How far the scores are from those that live engines recorded, by domain; null: all together.
-- A recorded 0 is a placeholder, which is only counted.
WITH recorded AS (
    SELECT
        task_domain AS domain,
        score,
        meets_threshold,
        nullif(recorded_score, 0) AS theirs,
        theirs >= (SELECT (settings->>'threshold')::DOUBLE FROM manifest) AS reached
    FROM scores
    WHERE recorded_score IS NOT NULL
)
SELECT
    domain,
    count(theirs) AS traces,
    count(*) - count(theirs) AS placeholders,
    avg(score - theirs) AS mean_difference,
    avg(abs(score - theirs)) AS mean_absolute_difference,
    count(*) FILTER (meets_threshold AND NOT reached) AS now_reaching,
    count(*) FILTER (reached AND NOT meets_threshold) AS no_longer_reaching
FROM recorded
GROUP BY GROUPING SETS ((domain), ())
HAVING count(*) > 0 AND (domain IS NULL OR count(theirs) > 0)
ORDER BY domain NULLS FIRST;
