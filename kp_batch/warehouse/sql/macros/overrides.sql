-- Arguments of each override: the score after the previous override, and whether its condition is met.
CREATE MACRO apply_single_thought(score, holds) AS CASE WHEN holds THEN 0.1 ELSE score END;

COMMENT ON MACRO apply_single_thought IS 'After the first override: a single thought scores 0.1.';

CREATE MACRO apply_recovery_bonus(score, holds) AS
    CASE WHEN holds THEN least(1, score + 0.1) ELSE score END;

COMMENT ON MACRO apply_recovery_bonus IS 'After the second override: 0.1 more, at most 1, for success after more than 2 recoveries.';

CREATE MACRO apply_low_diversity_penalty(score, holds) AS
    CASE WHEN holds THEN greatest(0, score - 0.1) ELSE score END;

COMMENT ON MACRO apply_low_diversity_penalty IS 'After the third override: 0.1 less, at least 0, if all tool steps use one tool.';

CREATE MACRO apply_overrides(composite, single_thought, recovery_bonus, low_diversity_penalty) AS
    kp.apply_low_diversity_penalty(
        kp.apply_recovery_bonus(kp.apply_single_thought(composite, single_thought), recovery_bonus),
        low_diversity_penalty
    );

COMMENT ON MACRO apply_overrides IS 'The score: the composite after the three overrides.';
