-- How far the scores are from those that live engines recorded. A recorded 0 is a placeholder, which is
-- only counted.
SELECT
    coalesce(sum(compared), 0)::BIGINT AS traces,
    coalesce(sum(recorded - compared), 0)::BIGINT AS placeholders,
    sum(differences) / nullif(sum(compared), 0) AS mean_difference,
    sum(absolute_differences) / nullif(sum(compared), 0) AS mean_absolute_difference
FROM by_domain;
