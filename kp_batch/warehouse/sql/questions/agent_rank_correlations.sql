-- Group: like with like
-- Example: FROM agent_rank_correlations WHERE agents >= 5;
CREATE VIEW agent_rank_correlations AS
WITH agents AS (
    SELECT key.task_domain AS task_domain, mean, success, tools, low_diversity_penalty
    FROM kp.means_by({'task_domain': task_domain, 'agent_id': agent_id})
    WHERE key.agent_id IS NOT NULL
),
ranked AS (
    SELECT
        task_domain,
        average_rank(round(mean, 12), task_domain) AS of_score,
        average_rank(success, task_domain) AS of_success,
        average_rank(round(tools, 12), task_domain) AS of_tools,
        average_rank(low_diversity_penalty, task_domain) AS of_penalty
    FROM agents
)
SELECT
    task_domain,
    count(*) AS agents,
    rank_correlation(of_score, of_success) AS success,
    rank_correlation(of_score, of_tools) AS tools,
    rank_correlation(of_score, of_penalty) AS low_diversity_penalty
FROM ranked
GROUP BY task_domain
ORDER BY task_domain;

COMMENT ON VIEW agent_rank_correlations IS 'Who is ranked high where agents are ranked by score: those that succeed, or those that use many tools? Spearman''s correlation of the mean score with success, with the mean number of tools and with the share that the penalty of low diversity takes, over the agents of a domain; null where one never varies. Agents have other tasks: paired_agents compares on the same ones.';
