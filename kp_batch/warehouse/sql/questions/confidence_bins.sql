-- Group: dimensions
-- Example: FROM confidence_bins ORDER BY traces DESC LIMIT 10;
CREATE VIEW confidence_bins AS
SELECT
    task_domain,
    agent_id,
    bin_of(confidence, 10) / 10 AS low,
    low + 0.1 AS high,
    count(*) AS traces,
    avg(confidence) AS stated,
    avg(success::INTEGER) AS happened
FROM kp.scores
GROUP BY ALL
ORDER BY task_domain, agent_id, low;

COMMENT ON VIEW confidence_bins IS 'Of the traces that state about this confidence, how many succeed? By domain and agent, in ten bins.';
