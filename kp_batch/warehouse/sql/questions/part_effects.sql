-- Group: dimensions
-- Example: FROM part_effects WHERE task_domain = 'code';
-- The score is the sum of these parts. So its variance is the sum of the covariances of each part with it.
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

COMMENT ON VIEW part_effects IS 'What drives the scores of each domain? A row is a dimension or an override in a domain: its mean weight, how many traces it changes, and its mean effect on these and on all traces. The effects on all traces sum to the mean score. The shares of the variance sum to 1, and are null if all scores are equal; a negative one offsets other parts.';
