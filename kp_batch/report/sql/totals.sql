-- One row about all scores together.
SELECT
    (settings->>'threshold')::DOUBLE AS threshold,
    (SELECT count(*) FROM labels) AS domains,
    first_day,
    last_day
FROM manifest
CROSS JOIN (SELECT min(day) AS first_day, max(day) AS last_day FROM scores_by_day);
