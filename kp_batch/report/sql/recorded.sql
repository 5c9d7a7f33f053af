-- How far the scores are from those that live engines recorded. A recorded 0 is a placeholder, and only counted.
SELECT
    count(nullif(recorded_score, 0)) AS traces,
    count(recorded_score) - traces AS placeholders,
    avg(score - nullif(recorded_score, 0)) AS mean_difference,
    avg(abs(score - nullif(recorded_score, 0))) AS mean_absolute_difference
FROM scores;
