-- Group: dimensions
-- Example: FROM dimension_statistics;
CREATE VIEW dimension_statistics AS
SELECT
    task_domain,
    count(*) AS traces,
    avg(complexity) AS complexity,
    stddev_samp(complexity) AS complexity_deviation,
    avg(novelty) AS novelty,
    count(*) FILTER (cache_filling) AS cache_filling,
    stddev_samp(novelty) AS novelty_deviation,
    avg(tool_diversity) AS tool_diversity,
    stddev_samp(tool_diversity) AS tool_diversity_deviation,
    avg(outcome_confidence) AS outcome_confidence,
    stddev_samp(outcome_confidence) AS outcome_confidence_deviation
FROM kp.scores
GROUP BY task_domain
ORDER BY task_domain;

COMMENT ON VIEW dimension_statistics IS 'How large are the four dimensions in each domain, and how spread? Means and sample deviations; that of a single trace is null.';
