-- Group: dimensions
-- Example: FROM dimension_correlations;
CREATE VIEW dimension_correlations AS
SELECT
    task_domain,
    correlation(complexity, novelty) AS complexity_novelty,
    correlation(complexity, tool_diversity) AS complexity_tool_diversity,
    correlation(complexity, outcome_confidence) AS complexity_outcome_confidence,
    correlation(novelty, tool_diversity) AS novelty_tool_diversity,
    correlation(novelty, outcome_confidence) AS novelty_outcome_confidence,
    correlation(tool_diversity, outcome_confidence) AS tool_diversity_outcome_confidence
FROM kp.scores
GROUP BY task_domain
ORDER BY task_domain;

COMMENT ON VIEW dimension_correlations IS 'Which dimensions vary together? A row is a domain, with Pearson''s correlations; null if a dimension is constant.';
