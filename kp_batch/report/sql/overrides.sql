-- How often each override applies, and by how much it moves the mean score, by domain.
WITH counted AS (
    SELECT domain, sum(traces) AS of_all
    FROM score_distribution
    JOIN labels USING (task_domain)
    GROUP BY domain
)
SELECT
    domain,
    replace(override, '_', ' ') AS override,
    sum(traces)::BIGINT AS traces,
    sum(traces) / any_value(of_all) AS share,
    sum(mean_effect * traces) / sum(traces) AS mean_effect,
    sum(mean_effect * traces) / any_value(of_all) AS effect_on_mean
FROM override_effects
JOIN labels USING (task_domain)
JOIN counted USING (domain)
GROUP BY ALL
ORDER BY ALL;
