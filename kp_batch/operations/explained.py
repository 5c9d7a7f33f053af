"""What `explain` and `score` tell: values, whose fields stand in the order of their JSON.

Nothing heavy is imported here: the command line takes these from the process that does the work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from kp_batch.dimensions import Breakdown
from kp_batch.unread import Unread

Row = Mapping[str, Any]  # by column: of a table, or what stands in its place


@dataclass(frozen=True)
class Step:
    """A step in short."""

    type: str
    tool: str | None
    content: str  # its start


@dataclass(frozen=True)
class Counts:
    """What the dimensions are computed from; null where it cannot be read again."""

    n_steps: int
    n_types: int | None  # distinct types of steps
    n_recoveries: int | None
    n_tool_steps: int | None  # steps that carry a tool
    n_tools: int  # distinct ones
    confidence: float | None
    success: bool

    @classmethod
    def of(cls, row: Row) -> Self:
        """Take them from the columns of `with_facts`, or of `scores`, which lack some."""
        counts: dict[str, Any] = {each.name: row.get(each.name) for each in fields(cls)}
        return cls(**counts)


@dataclass(frozen=True)
class Piece:
    """A part of a text."""

    text: str
    shared: bool  # whether the other text has it, too, at the corresponding place


@dataclass(frozen=True)
class Similar:
    """A trace that the cache held when another one came."""

    trace_id: str
    task_domain: str
    created_at: str  # ISO 8601, UTC
    similarity: float  # the cosine, -1..1
    age_s: float  # how much earlier it was made, seconds


@dataclass(frozen=True)
class Neighbour(Similar):
    """The same, and what the two have in common."""

    is_same_text: bool
    text: tuple[Piece, ...] | None  # of what was embedded, from where the two begin to differ
    own_text: tuple[Piece, ...] | None  # the same of the trace that came
    unread: Unread | None  # why there are no texts


@dataclass(frozen=True)
class Held:
    """What the cache held when a trace came."""

    size: int  # vectors
    capacity: int
    ttl: str  # such as 7d, or none
    oldest: str | None  # when it was made: ISO 8601, UTC
    newest: str | None
    domains: dict[str, int]  # traces by domain, most first


@dataclass(frozen=True)
class Past:
    """A score that a trace had, and what the run that gave it changed about it."""

    run_id: str
    finished_at: str  # ISO 8601, UTC
    score: float
    change: float | None  # since the score before; null: the first that is known
    from_facts: float | None  # the four sum to the change
    from_novelty: float | None
    from_weights: float | None
    from_overrides: float | None
    reasons: tuple[str, ...]  # why the run had anything to do; not the weights of other domains


@dataclass(frozen=True)
class Explanation:
    """Why a published trace has its score."""

    trace_id: str
    created_at: str  # ISO 8601, UTC
    task_domain: str
    agent_id: str | None
    framework: str | None
    success: bool
    source_file: str
    row: int | None  # in the file, from 0; null where it is not known any more
    unread: Unread | None  # why the following two are null
    objective: str | None
    steps: tuple[Step, ...] | None
    is_cut: bool | None  # whether its encoder reads the text's beginning alone; null: not known
    counts: Counts
    breakdown: Breakdown
    threshold: float  # 0..1
    recorded_score: float | None  # what the live engine gave it
    weights_from: str | None  # the day or time from which its weights hold; null: always
    by_profile: dict[str, float]  # the score under each profile in force at created_at
    encoder_id: str
    cache_id: str
    cache_group: str | None  # JSON of what tells its cache from others; null: one for all
    max_similarity: float | None  # null where the cache was empty
    held: Held | None  # null without an encoder
    neighbours: tuple[Neighbour, ...]  # the most similar first
    unmet: str | None  # why there are none, or why they are not those that it met
    history: tuple[Past, ...]  # the last run that changed it first
    run_id: str  # of the run that last scored it


@dataclass(frozen=True)
class Scored:
    """The score of a new trace, and what it is made of."""

    line: int  # from 1
    trace_id: str | None
    task_domain: str
    score: float  # 0..1
    by_profile: dict[str, float]  # under each profile in force
    weights_from: str | None  # the day or time from which its weights hold; null: always
    counts: Counts
    breakdown: Breakdown
    max_similarity: float | None  # null where the cache is empty, or nothing is compared
    neighbours: tuple[Similar, ...]  # the most similar first


@dataclass(frozen=True)
class Unscored:
    """Why a line has no score."""

    line: int  # from 1
    trace_id: str | None
    reasons: tuple[str, ...]  # codes
    message: str
