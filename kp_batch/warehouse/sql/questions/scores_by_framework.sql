-- Group: distribution
-- Example: FROM scores_by_framework WHERE tasks >= 10;
CREATE VIEW scores_by_framework AS
SELECT
    key.task_domain AS task_domain,
    key.framework AS framework,
    * EXCLUDE (key, median, confidence, overconfidence, overconfidence_low, overconfidence_high)
FROM kp.means_by({'task_domain': task_domain, 'framework': framework})
ORDER BY task_domain, framework;

COMMENT ON VIEW scores_by_framework IS 'How do the frameworks differ within a domain? As scores_by_agent; paired_frameworks compares two on the same tasks.';
