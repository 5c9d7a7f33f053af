-- Group: distribution
-- Example: FROM scores_by_agent WHERE traces > 1;
CREATE VIEW scores_by_agent AS
SELECT
    agent_id,
    count(*) AS traces,
    avg(score) AS mean,
    count(*) FILTER (meets_threshold) AS worth_sharing,
    avg(novelty) AS novelty
FROM scores
GROUP BY agent_id
ORDER BY agent_id;

COMMENT ON VIEW scores_by_agent IS 'How do the scores and the novelty of the agents differ? Null: the traces that name none.';
