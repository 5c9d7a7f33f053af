-- Group: means
-- Example: FROM agent_rank_correlations ORDER BY agents DESC LIMIT 10;
-- The interval is Bonett and Wright's, by Fisher's transform, which is infinite at 1. So a correlation of 1 is
-- lowered by half a step. A step is the change if two neighbours swap their places.
CREATE VIEW agent_rank_correlations AS
WITH agents AS (
    UNPIVOT (
        SELECT
            task_domain,
            round(avg(score), 12) AS score,
            round(avg(success), 12) AS success,
            round(avg(tools), 12) AS tools,
            round(avg(from_low_diversity_penalty), 12) AS from_low_diversity_penalty
        FROM kp.trace_measures
        WHERE agent_id IS NOT NULL
        GROUP BY task_domain, agent_id
    )
    ON success, tools, from_low_diversity_penalty
    INTO NAME measure VALUE mean
),
ranked AS (
    SELECT
        *,
        average_rank(score, (task_domain, measure)) AS of_score,
        average_rank(mean, (task_domain, measure)) AS of_mean,
        greatest(
            count(*) OVER (PARTITION BY task_domain, measure, score),
            count(*) OVER (PARTITION BY task_domain, measure, mean)
        ) AS tied
    FROM agents
),
correlations AS (
    SELECT
        task_domain,
        measure,
        count(*) AS agents,
        CASE WHEN count(*) >= 5 AND max(tied) <= count(*) / 2
            THEN rank_correlation(of_score, of_mean)
        END AS correlation
    FROM ranked
    GROUP BY task_domain, measure
),
transformed AS (
    SELECT
        *,
        atanh(
            sign(correlation) * least(abs(correlation), 1 - 6 / (agents * (agents * agents - 1)))
        ) AS z,
        1.959963984540054 * sqrt((1 + correlation * correlation / 2) / (agents - 3)) AS margin
    FROM correlations
)
SELECT
    task_domain,
    measure,
    agents,
    correlation,
    CASE WHEN correlation <= -1 THEN -1 ELSE tanh(z - margin) END AS low,
    CASE WHEN correlation >= 1 THEN 1 ELSE tanh(z + margin) END AS high
FROM transformed
ORDER BY task_domain, list_position(['success', 'tools', 'from_low_diversity_penalty'], measure);

COMMENT ON VIEW agent_rank_correlations IS 'Do agents with high scores succeed more often, use more tools, or avoid the low-diversity penalty? A row is a measure in a domain: Spearman''s correlation of the agents'' mean scores with their means of the measure. Each agent counts once. low, high: the 95% interval of the correlation, for another draw of agents. All three are null below 5 agents, or if over half of the agents share a value. differences_by compares two agents on the same tasks.';
