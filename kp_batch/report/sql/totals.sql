-- One row: the threshold, the number of domains, and the first and last day of all scores.
SELECT
    (settings->>'threshold')::DOUBLE AS threshold,
    (SELECT count(*) FROM labels) AS domains,
    first_day,
    last_day
FROM manifest
CROSS JOIN (SELECT min(day) AS first_day, max(day) AS last_day FROM scores_by_day);
