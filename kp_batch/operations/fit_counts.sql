-- How many traces of some domains reach a threshold under their own weights, and another under fitted ones.
-- Given: the schema published, the catalog's macros, and the table weights: task_domain, the published
-- weights, the fitted ones, and a threshold for each.
WITH scored AS (
    SELECT
        apply_overrides(
            composite(complexity, novelty, tool_diversity, outcome_confidence, pc, pn, pd, po),
            single_thought, recovery_bonus, low_diversity_penalty
        ) >= published_threshold AS is_published,
        apply_overrides(
            composite(complexity, novelty, tool_diversity, outcome_confidence, fc, fn, fd, fo),
            single_thought, recovery_bonus, low_diversity_penalty
        ) >= fitted_threshold AS is_fitted
    FROM published.scores
    JOIN weights USING (task_domain)
)
SELECT
    count(*) AS traces,
    count(*) FILTER (is_published) AS published,
    count(*) FILTER (is_fitted) AS fitted
FROM scored
