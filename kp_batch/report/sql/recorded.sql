-- How far the scores are from those that live engines recorded. A recorded 0 is a placeholder, which is
-- only counted.
SELECT
    count(theirs) AS traces,
    count(*) - count(theirs) AS placeholders,
    avg(score - theirs) AS mean_difference,
    avg(abs(score - theirs)) AS mean_absolute_difference
FROM (
    SELECT score, nullif(recorded_score, 0) AS theirs
    FROM scores_extract
    WHERE recorded_score IS NOT NULL
);
