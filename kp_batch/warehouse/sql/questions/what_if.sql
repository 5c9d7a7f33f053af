-- Group: what if
-- Example: FROM what_if(0.25, 0.25, 0.25, 0.25) ORDER BY change DESC LIMIT 10;
CREATE MACRO what_if(wc, wn, wd, wo) AS TABLE
SELECT
    weighted.trace_id,
    weighted.task_domain,
    kp.apply_overrides(other_composite, single_thought, recovery_bonus, low_diversity_penalty)
        AS score,
    weighted.score AS published_score,
    kp.apply_overrides(other_composite, single_thought, recovery_bonus, low_diversity_penalty)
        - weighted.score AS change
FROM (
    SELECT
        *,
        kp.composite(
            complexity, novelty, tool_diversity, outcome_confidence,
            wc::DOUBLE, wn::DOUBLE, wd::DOUBLE, wo::DOUBLE
        ) AS other_composite
    FROM kp.scores
) AS weighted
-- As a profile's weights do; others give what is no score.
WHERE CASE
    WHEN least(wc, wn, wd, wo) >= 0 AND abs(wc + wn + wd + wo - 1) <= 1e-9 THEN true
    ELSE error('the weights of what_if must sum to 1, and none be below 0')
END;

COMMENT ON MACRO TABLE what_if IS 'What would every score be under other weights (complexity, novelty, tool diversity, outcome confidence), overrides included? score is the one under these weights.';
