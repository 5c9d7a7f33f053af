-- Mean and sample standard deviation of each dimension, by domain.
SELECT
    task_domain AS domain,
    unnest(['complexity', 'novelty', 'tool diversity', 'outcome confidence']) AS dimension,
    unnest([complexity, novelty, tool_diversity, outcome_confidence]) AS mean,
    unnest([
        complexity_deviation,
        novelty_deviation,
        tool_diversity_deviation,
        outcome_confidence_deviation
    ]) AS stddev
FROM dimension_statistics
ORDER BY ALL;
