"""The parts of a score; apart from the schemas, so that settings load without Polars."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

DIMENSIONS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
OVERRIDES = ("single_thought", "recovery_bonus", "low_diversity_penalty")  # in their order


@dataclass(frozen=True)
class Term:
    """The contribution of a dimension to the composite."""

    dimension: str
    value: float  # 0..1
    weight: float  # 0..1
    product: float


@dataclass(frozen=True)
class Override:
    """The effect of an override on the score that the previous ones left."""

    name: str
    applies: bool
    change: float  # to the score; may be 0 at a bound


@dataclass(frozen=True)
class Breakdown:
    """How a score is computed: the terms add up to the composite, and overrides change it."""

    profile: str
    profile_id: str
    terms: tuple[Term, ...]  # in the order of the sum
    composite: float  # 0..1
    overrides: tuple[Override, ...]  # in the order in which they apply
    score: float  # 0..1


@dataclass(frozen=True)
class Counts:
    """The counts behind the dimensions; null if the trace cannot be read again."""

    n_steps: int
    n_types: int | None  # distinct types of steps
    n_recoveries: int | None
    n_tool_steps: int | None  # steps that use a tool
    n_tools: int  # distinct tools
    confidence: float | None
    success: bool

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Read the counts from a row of `with_facts`, or of `scores`, which lacks some."""
        counts: dict[str, Any] = {field.name: row.get(field.name) for field in fields(cls)}
        return cls(**counts)
