"""What the page shows about single traces, in addition to the rows of its tables."""

from collections.abc import Mapping
from dataclasses import dataclass

from kp_batch.dimensions import Breakdown
from kp_batch.errors import Unread


@dataclass(frozen=True)
class StepStart:
    """The start of a step."""

    type: str
    tool: str  # empty without a tool
    start: str


@dataclass(frozen=True)
class Text:
    """The task of a trace and its steps: printable, and cut to a length."""

    objective: str
    types: Mapping[str, int]  # how many steps it has of each type
    tools: tuple[str, ...]  # the first ones
    steps: tuple[StepStart, ...]  # the first ones


@dataclass(frozen=True)
class Detail:
    """How the score of a trace came about, and where the archive had it."""

    breakdown: Breakdown
    task_domain: str
    cache_group: str | None  # see `schemas.SCORES`
    cached_vectors: int
    n_steps: int
    n_tools: int
    source_file: str
    row: int | None  # from 0; None: no longer known


@dataclass(frozen=True)
class Traces:
    """The traces of the page's tables, by their ids, and the ones nearest to them."""

    details: Mapping[str, Detail]
    texts: Mapping[str, Text | Unread] | None  # None: left out by the warehouse's settings
