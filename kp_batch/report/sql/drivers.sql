-- What makes the variance of the scores: dimensions and overrides; and what overrides do in all: to as many
-- traces as there are, whose mean effect a sample may tell.
WITH overridden AS (
    UNPIVOT (
        SELECT
            task_domain,
            count(*) FILTER (single_thought) AS single_thought,
            count(*) FILTER (recovery_bonus) AS recovery_bonus,
            count(*) FILTER (low_diversity_penalty) AS low_diversity_penalty
        FROM scoped
        GROUP BY ALL
    )
    ON single_thought, recovery_bonus, low_diversity_penalty
    INTO NAME override VALUE traces
)
SELECT
    effects.task_domain AS domain,
    replace(part, '_', ' ') AS part,
    overrides.override IS NOT NULL OR weight IS NULL AS is_override,
    weight,
    share_of_variance,
    effects.mean_effect AS effect_on_mean,
    CASE WHEN overrides.override IS NOT NULL THEN overridden.traces END AS traces,
    overrides.mean_effect AS mean_effect,
    overridden.traces * overrides.mean_effect AS total_effect
FROM dimension_effects AS effects
LEFT JOIN override_effects AS overrides
    ON (effects.task_domain, part) = (overrides.task_domain, overrides.override)
LEFT JOIN overridden ON (effects.task_domain, part) = (overridden.task_domain, overridden.override)
ORDER BY domain, is_override, part;
