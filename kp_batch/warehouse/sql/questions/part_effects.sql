-- Group: dimensions
-- Example: FROM part_effects WHERE task_domain = 'code';
-- The score is the sum of these parts, so that its variance is the sum of their covariances with it.
CREATE VIEW part_effects AS
WITH parts AS (
    UNPIVOT (
        SELECT task_domain, score, COLUMNS('from_(.*)') AS '\1'
        FROM kp.trace_measures
    )
    ON * EXCLUDE (task_domain, score)
    INTO NAME part VALUE effect
),
weights AS (
    UNPIVOT (
        SELECT task_domain, avg(COLUMNS('weight_of_(.*)')) AS '\1'
        FROM kp.trace_measures
        GROUP BY task_domain
    )
    ON * EXCLUDE (task_domain)
    INTO NAME part VALUE weight
)
SELECT
    task_domain,
    part,
    any_value(weight) AS weight,
    count(*) FILTER (effect <> 0) AS traces,
    avg(effect) FILTER (effect <> 0) AS effect_where_any,
    avg(effect) AS mean_effect,
    covar_pop(effect, score) / nullif(var_pop(score), 0) AS share_of_variance
FROM parts
LEFT JOIN weights USING (task_domain, part)
GROUP BY task_domain, part
ORDER BY task_domain, list_position(
    [
        'complexity', 'novelty', 'tool_diversity', 'outcome_confidence',
        'single_thought', 'recovery_bonus', 'low_diversity_penalty'
    ],
    part
);

COMMENT ON VIEW part_effects IS 'What drives the scores of each domain? For each dimension and each override: its weight (the mean of dated ones); how many traces it changes; its mean effect on those, and on all traces (these sum to the mean score); its share of the variance of the scores (these sum to 1; below 0, it evens out other parts; null where all scores are equal).';
