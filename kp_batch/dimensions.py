"""The parts of a score, apart from the schemas: to read settings without importing Polars."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

DIMENSIONS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
OVERRIDES = ("single_thought", "recovery_bonus", "low_diversity_penalty")  # in their order


@dataclass(frozen=True)
class Term:
    """What a dimension adds to the composite."""

    dimension: str
    value: float  # 0..1
    weight: float  # 0..1
    product: float


@dataclass(frozen=True)
class Override:
    """What an override does to the score that the ones before it left."""

    name: str
    applies: bool
    change: float  # of the score; may be 0 at a bound


@dataclass(frozen=True)
class Breakdown:
    """How a score comes about: the composite is the sum of the terms, the overrides change it."""

    profile: str
    profile_id: str
    terms: tuple[Term, ...]  # in the order in which they are summed
    composite: float  # 0..1
    overrides: tuple[Override, ...]  # in the order in which they follow each other
    score: float  # 0..1


@dataclass(frozen=True)
class Counts:
    """What the dimensions are computed from; null where it cannot be read again."""

    n_steps: int
    n_types: int | None  # distinct types of steps
    n_recoveries: int | None
    n_tool_steps: int | None  # steps that carry a tool
    n_tools: int  # distinct tools
    confidence: float | None
    success: bool

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Read them from a row of `with_facts`, or of `scores`, which lacks some."""
        counts: dict[str, Any] = {field.name: row.get(field.name) for field in fields(cls)}
        return cls(**counts)
