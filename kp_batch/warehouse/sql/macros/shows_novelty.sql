-- With a bonus, the bound of 1 hides what exceeds it, even if 0.1 is subtracted afterwards.
CREATE MACRO shows_novelty(
    recorded_score, novelty_weight, single_thought, recovery_bonus, low_diversity_penalty
) AS recorded_score > 0
    AND novelty_weight > 0
    AND NOT single_thought
    AND recorded_score < kp.apply_overrides(1::DOUBLE, false, recovery_bonus, low_diversity_penalty);

COMMENT ON MACRO shows_novelty IS 'Whether a recorded score depends on novelty: not for a placeholder, a single thought, a weight of 0 or a score at its bound.';
