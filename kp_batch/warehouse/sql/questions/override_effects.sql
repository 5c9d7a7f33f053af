CREATE VIEW override_effects AS
WITH first AS (
    SELECT *, CASE WHEN single_thought THEN 0.1 ELSE composite END AS after_first FROM scores
),
second AS (
    SELECT
        *,
        CASE WHEN recovery_bonus THEN least(1, after_first + 0.1) ELSE after_first END
            AS after_second
    FROM first
),
effects AS (
    SELECT task_domain, 'single_thought' AS override, after_first - composite AS effect
    FROM second
    WHERE single_thought
    UNION ALL
    SELECT task_domain, 'recovery_bonus', after_second - after_first
    FROM second
    WHERE recovery_bonus
    UNION ALL
    SELECT task_domain, 'low_diversity_penalty', score - after_second
    FROM second
    WHERE low_diversity_penalty
)
SELECT
    task_domain,
    override,
    count(*) AS traces,
    count(*) / any_value(of_all) AS share,
    avg(effect) AS mean_effect,
    sum(effect) / any_value(of_all) AS effect_on_mean
FROM effects
JOIN (SELECT task_domain, count(*) AS of_all FROM scores GROUP BY ALL) USING (task_domain)
GROUP BY task_domain, override
ORDER BY task_domain, override;

COMMENT ON VIEW override_effects IS 'How often does each override apply in each domain, what does it do to those scores, and to the mean of all?';
