-- The beginning of the step of time that has a day, in each scope; null outside of its span. To find it by
-- its day takes a tenth of the time that it takes to compute it for each trace. Given: scores_by_day and spans.
CREATE OR REPLACE TEMP TABLE steps_of_days AS
SELECT
    domain,
    day,
    CASE WHEN day BETWEEN first_day AND last_day THEN date_trunc(grain, day::TIMESTAMP) END AS start,
    grain = 'hour' AND start IS NOT NULL AS is_by_hour
FROM scores_by_day
JOIN spans USING (domain);
