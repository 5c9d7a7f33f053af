"""What a format makes of one trace, before the rules decide what it leaves open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class Origin:
    """Who did it, as far as that is told."""

    agent: str | None = None  # its name
    model: str | None = None
    session: str | None = None
    version: str | None = None  # of the agent


@dataclass(frozen=True)
class Draft:
    """A trace as its system tells it."""

    id: str  # `kp:trace:` and the native id
    created_at: datetime | None  # with a zone; None if it is not told
    objective: str
    steps: Sequence[Mapping[str, object]]
    scores: Mapping[str, float] = field(default_factory=dict[str, float])  # the latest by name
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    faults: Sequence[str] = ()  # reasons to refuse it that the format has found
    # What only some formats have; None where a rule has to decide.
    success: bool | None = None
    confidence: float | None = None
    task_domain: str | None = None
    # Carried through.
    origin: Origin = Origin()
    framework: str | None = None
    source_skill: str | None = None
    quality_score: float | None = None
    visibility: str | None = None
    privacy_level: str | None = None
    result_summary: str | None = None


@dataclass(frozen=True)
class Refused:
    """What cannot be imported: a trace, a line or a file."""

    reasons: Sequence[str]  # the codes of `reasons`, and those of imports
    message: str = ""
    id: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class PassedOver:
    """What is no agent's trace, and is only counted."""

    what: str


@dataclass(frozen=True)
class Unit:
    """What one place of a source tells of one trace: a span, a score, or all of it."""

    trace: str  # the trace's native id
    record: object  # JSON; None: it is too large to be read
    line: int | None = None
