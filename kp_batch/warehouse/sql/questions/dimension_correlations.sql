-- Group: dimensions
-- Example: FROM dimension_correlations;
CREATE VIEW dimension_correlations AS
SELECT
    task_domain,
    corr(complexity, novelty) AS complexity_novelty,
    corr(complexity, tool_diversity) AS complexity_tool_diversity,
    corr(complexity, outcome_confidence) AS complexity_outcome_confidence,
    corr(novelty, tool_diversity) AS novelty_tool_diversity,
    corr(novelty, outcome_confidence) AS novelty_outcome_confidence,
    corr(tool_diversity, outcome_confidence) AS tool_diversity_outcome_confidence
FROM scores
GROUP BY task_domain
ORDER BY task_domain;

COMMENT ON VIEW dimension_correlations IS 'Which dimensions go together in each domain? Pearson correlations; null or NaN where one never varies.';
