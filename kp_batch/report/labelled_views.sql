-- Given: the views scores_extract and labels; function, which the questions of the catalog ask.
CREATE OR REPLACE TEMP VIEW scores AS
SELECT scores_extract.* REPLACE (domain AS task_domain)
FROM scores_extract JOIN labels USING (task_domain);

-- DuckDB finds it before the catalog's, so that the questions answer by label, however many domains there are.
CREATE OR REPLACE TEMP MACRO $function() AS TABLE FROM scores;

CREATE OR REPLACE TEMP TABLE scores_by_day AS
SELECT
    day_of(created_at) AS day,
    task_domain,
    count(*) AS traces,
    avg(score) AS mean,
    avg(novelty) AS novelty
FROM scores
GROUP BY ALL;
