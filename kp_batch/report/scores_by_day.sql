-- How many traces each scope has of a day, the sum of their scores, and how many of them came while their
-- cache was filling. Given: scores_extract and scopes.
CREATE OR REPLACE TEMP TABLE scores_by_day AS
SELECT
    scope AS domain,
    day_of(created_at) AS day,
    count(*) AS traces,
    sum(score) AS score,
    count(*) FILTER (cache_filling) AS cache_filling
FROM scores_extract
JOIN scopes USING (task_domain)
GROUP BY ALL;
