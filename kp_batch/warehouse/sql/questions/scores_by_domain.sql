-- Group: distribution
-- Example: FROM scores_by_domain;
CREATE VIEW scores_by_domain AS
SELECT
    key.task_domain AS task_domain,
    * EXCLUDE (key, median, confidence, overconfidence, overconfidence_low, overconfidence_high)
FROM kp.means_by({'task_domain': task_domain})
ORDER BY task_domain;

COMMENT ON VIEW scores_by_domain IS 'How do the domains differ, and how far can that be trusted? Doubt as in means_by.';
