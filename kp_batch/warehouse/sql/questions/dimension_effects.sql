-- Group: dimensions
-- Example: FROM dimension_effects WHERE task_domain = 'code';
-- The score is the sum of these parts, so that its variance is the sum of their covariances with it.
CREATE VIEW dimension_effects AS
WITH steps AS (
    SELECT
        *,
        apply_single_thought(composite, single_thought) AS after_first,
        apply_recovery_bonus(after_first, recovery_bonus) AS after_second
    FROM kp.scores
),
parts AS (
    SELECT
        steps.task_domain AS task_domain,
        score,
        unnest([
            {'part': 'complexity', 'weight': weights.complexity, 'value': weights.complexity * steps.complexity},
            {'part': 'novelty', 'weight': weights.novelty, 'value': weights.novelty * steps.novelty},
            {
                'part': 'tool_diversity',
                'weight': weights.tool_diversity,
                'value': weights.tool_diversity * steps.tool_diversity
            },
            {
                'part': 'outcome_confidence',
                'weight': weights.outcome_confidence,
                'value': weights.outcome_confidence * steps.outcome_confidence
            },
            {'part': 'single_thought', 'weight': NULL, 'value': after_first - composite},
            {'part': 'recovery_bonus', 'weight': NULL, 'value': after_second - after_first},
            {'part': 'low_diversity_penalty', 'weight': NULL, 'value': score - after_second}
        ], recursive := true)
    FROM steps
    JOIN kp.profiles AS weights USING (profile_id)
)
SELECT
    task_domain,
    part,
    avg(weight) AS weight,
    avg(value) AS mean_effect,
    covar_pop(value, score) / nullif(var_pop(score), 0) AS share_of_variance
FROM parts
GROUP BY task_domain, part
ORDER BY task_domain, list_position(
    [
        'complexity', 'novelty', 'tool_diversity', 'outcome_confidence',
        'single_thought', 'recovery_bonus', 'low_diversity_penalty'
    ],
    part
);

COMMENT ON VIEW dimension_effects IS 'What drives the scores of each domain? The share of their variance that each weighted dimension and each override makes, beside its weight (the mean of dated ones): the shares sum to 1, and one below 0 evens out what the others do; null where all scores are equal.';
