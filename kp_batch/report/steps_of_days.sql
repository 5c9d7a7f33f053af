-- Finds the beginning of the step of time that contains each day, in each scope. It is null outside of the
-- scope's span. A lookup by day takes a tenth of the time of computing it for each trace.
-- Given: scores_by_day and spans.
CREATE OR REPLACE TEMP TABLE steps_of_days AS
SELECT
    domain,
    day,
    CASE WHEN day BETWEEN first_day AND last_day THEN date_trunc(grain, day::TIMESTAMP) END AS start,
    grain = 'hour' AND start IS NOT NULL AS is_by_hour
FROM scores_by_day
JOIN spans USING (domain);
