"""What a score is made of, apart from the contracts: who reads settings needs no Polars."""

DIMENSIONS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
OVERRIDES = ("single_thought", "recovery_bonus", "low_diversity_penalty")  # in their order
