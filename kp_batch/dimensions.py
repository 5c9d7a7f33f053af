"""The four dimensions of a score, apart from the contracts: who reads settings needs no Polars."""

DIMENSIONS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
