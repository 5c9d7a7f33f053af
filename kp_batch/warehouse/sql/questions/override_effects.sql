-- Group: dimensions
-- Example: FROM override_effects ORDER BY abs(total_effect) DESC LIMIT 10;
CREATE VIEW override_effects AS
WITH steps AS (
    SELECT
        *,
        apply_single_thought(composite, single_thought) AS after_first,
        apply_recovery_bonus(after_first, recovery_bonus) AS after_second
    FROM kp.scores
),
effects AS (
    SELECT task_domain, 'single_thought' AS override, after_first - composite AS effect
    FROM steps
    WHERE single_thought
    UNION ALL
    SELECT task_domain, 'recovery_bonus', after_second - after_first
    FROM steps
    WHERE recovery_bonus
    UNION ALL
    SELECT task_domain, 'low_diversity_penalty', score - after_second
    FROM steps
    WHERE low_diversity_penalty
)
SELECT
    task_domain,
    override,
    count(*) AS traces,
    count(*) / any_value(overall) AS share,
    avg(effect) AS mean_effect,
    sum(effect) AS total_effect,
    sum(effect) / any_value(overall) AS effect_on_mean
FROM effects
JOIN (SELECT task_domain, count(*) AS overall FROM kp.scores GROUP BY ALL) USING (task_domain)
GROUP BY task_domain, override
ORDER BY task_domain, override;

COMMENT ON VIEW override_effects IS 'How often does each override apply in each domain, what does it do to those scores, in all (traces times effect), and to the mean of the domain?';
