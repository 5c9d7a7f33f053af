-- How often each override applies, and by how much it moves the mean score, by domain.
SELECT
    task_domain AS domain,
    replace(override, '_', ' ') AS override,
    traces,
    share,
    mean_effect,
    effect_on_mean
FROM override_effects
ORDER BY ALL;
