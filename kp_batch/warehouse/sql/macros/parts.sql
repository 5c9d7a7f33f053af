-- These macros compare structs of means: of from_*, weight_of_* and the dimensions.
CREATE MACRO part_differences(of_a, of_b) AS {
    'complexity': of_b.from_complexity - of_a.from_complexity,
    'novelty': of_b.from_novelty - of_a.from_novelty,
    'tool_diversity': of_b.from_tool_diversity - of_a.from_tool_diversity,
    'outcome_confidence': of_b.from_outcome_confidence - of_a.from_outcome_confidence,
    'single_thought': of_b.from_single_thought - of_a.from_single_thought,
    'recovery_bonus': of_b.from_recovery_bonus - of_a.from_recovery_bonus,
    'low_diversity_penalty': of_b.from_low_diversity_penalty - of_a.from_low_diversity_penalty
};

COMMENT ON MACRO part_differences IS 'The difference of each part of the score from a to b.';

-- The effect of other weights on weight * value. The rest of the difference is the effect of other values, at
-- the mean weight.
CREATE MACRO effects_of_weights(of_a, of_b) AS {
    'complexity': (of_b.weight_of_complexity - of_a.weight_of_complexity)
        * (of_a.complexity + of_b.complexity) / 2,
    'novelty': (of_b.weight_of_novelty - of_a.weight_of_novelty)
        * (of_a.novelty + of_b.novelty) / 2,
    'tool_diversity': (of_b.weight_of_tool_diversity - of_a.weight_of_tool_diversity)
        * (of_a.tool_diversity + of_b.tool_diversity) / 2,
    'outcome_confidence': (of_b.weight_of_outcome_confidence - of_a.weight_of_outcome_confidence)
        * (of_a.outcome_confidence + of_b.outcome_confidence) / 2
};

COMMENT ON MACRO effects_of_weights IS 'The effect of other weights on the difference of each dimension, at its mean value in a and b.';

-- 12 decimals hide the noise of equal values. Adding 0 turns -0 into 0.
CREATE MACRO part(difference, effect) AS
    round(coalesce(difference, 0) - coalesce(effect, 0), 12) + 0.0;

COMMENT ON MACRO part IS 'A part of a difference, without the effect of other weights, to 12 decimal places.';

CREATE MACRO parts_of_difference(differences, effects) AS {
    'complexity': kp.part(differences.complexity, effects.complexity),
    'novelty': kp.part(differences.novelty, effects.novelty),
    'tool_diversity': kp.part(differences.tool_diversity, effects.tool_diversity),
    'outcome_confidence': kp.part(differences.outcome_confidence, effects.outcome_confidence),
    'weights': kp.part(
        effects.complexity + effects.novelty + effects.tool_diversity + effects.outcome_confidence, 0
    ),
    'single_thought': kp.part(differences.single_thought, 0),
    'recovery_bonus': kp.part(differences.recovery_bonus, 0),
    'low_diversity_penalty': kp.part(differences.low_diversity_penalty, 0)
};

COMMENT ON MACRO parts_of_difference IS 'The parts that sum to a difference of scores: part_differences without effects_of_weights, and the sum of these effects.';

-- The mean of the others, from sums over all rows.
CREATE MACRO without(sums, own, n) AS {
    'from_complexity': (sums.from_complexity - own.from_complexity) / (n - 1),
    'from_novelty': (sums.from_novelty - own.from_novelty) / (n - 1),
    'from_tool_diversity': (sums.from_tool_diversity - own.from_tool_diversity) / (n - 1),
    'from_outcome_confidence': (sums.from_outcome_confidence - own.from_outcome_confidence) / (n - 1),
    'from_single_thought': (sums.from_single_thought - own.from_single_thought) / (n - 1),
    'from_recovery_bonus': (sums.from_recovery_bonus - own.from_recovery_bonus) / (n - 1),
    'from_low_diversity_penalty': (sums.from_low_diversity_penalty - own.from_low_diversity_penalty) / (n - 1),
    'weight_of_complexity': (sums.weight_of_complexity - own.weight_of_complexity) / (n - 1),
    'weight_of_novelty': (sums.weight_of_novelty - own.weight_of_novelty) / (n - 1),
    'weight_of_tool_diversity': (sums.weight_of_tool_diversity - own.weight_of_tool_diversity) / (n - 1),
    'weight_of_outcome_confidence': (sums.weight_of_outcome_confidence - own.weight_of_outcome_confidence) / (n - 1),
    'complexity': (sums.complexity - own.complexity) / (n - 1),
    'novelty': (sums.novelty - own.novelty) / (n - 1),
    'tool_diversity': (sums.tool_diversity - own.tool_diversity) / (n - 1),
    'outcome_confidence': (sums.outcome_confidence - own.outcome_confidence) / (n - 1)
};

COMMENT ON MACRO without IS 'The mean of n rows without one of them, from their sums.';
