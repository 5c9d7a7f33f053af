-- Group: distribution
-- Example: FROM scores_by_framework;
CREATE VIEW scores_by_framework AS
SELECT
    framework,
    count(*) AS traces,
    avg(score) AS mean,
    count(*) FILTER (meets_threshold) AS worth_sharing,
    avg(novelty) AS novelty
FROM scores
GROUP BY framework
ORDER BY framework;

COMMENT ON VIEW scores_by_framework IS 'How do the scores and the novelty of the frameworks differ? Null: the traces that name none.';
