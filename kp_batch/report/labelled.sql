-- Given: the view kept, and the view labels. The questions of the catalog find these before its own
-- views of the same names, so that they are answered by label, however many domains there are.
CREATE OR REPLACE TEMP VIEW scores AS
SELECT kept.* REPLACE (domain AS task_domain) FROM kept JOIN labels USING (task_domain);

CREATE OR REPLACE TEMP TABLE scores_by_day AS
SELECT day, task_domain, traces, mean, novelty FROM kp.scores_by_day;
