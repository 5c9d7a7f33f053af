"""A span as every transport tells it, and what dialects find in one."""

from collections.abc import Sequence
from dataclasses import dataclass

from kp_batch.importers.messages import Json, Message, ToolCall, ToolResult
from kp_batch.importers.scores import score_of


@dataclass(frozen=True)
class Event:
    """What happened within a span."""

    name: str
    time: int  # in nanoseconds after 1970; 0 if it is not told
    attributes: Json


@dataclass(frozen=True)
class Span:
    """One span of a trace."""

    id: str
    parent: str  # '' for a root
    name: str
    start: int | None  # in nanoseconds after 1970
    end: int | None
    failed: bool
    attributes: Json
    resource: Json
    events: Sequence[Event]

    def record(self) -> dict[str, object]:
        """The span as JSON."""
        return {**vars(self), "events": [vars(each) for each in self.events]}

    @classmethod
    def of(cls, record: Json) -> "Span":
        """The span that a record tells of."""
        events = [Event(**each) for each in record["events"]]
        return cls(**{name: record[name] for name in record if name != "events"}, events=events)


@dataclass(frozen=True)
class ModelCall:
    """A call of a model: the messages it was given, and those it answered with."""

    given: Sequence[Message] = ()
    answer: Sequence[Message] = ()


@dataclass(frozen=True)
class ToolRun:
    """A run of a tool."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True)
class AgentRun:
    """A run of an agent, of which the messages count where no call of a model is told."""

    given: Sequence[Message] = ()
    answer: Sequence[Message] = ()


Said = ModelCall | ToolRun | AgentRun


@dataclass(frozen=True)
class Score:
    """A judgement of a span, or of its trace."""

    name: str
    value: float
    time: int


def score(name: object, value: object, time: int) -> Score | None:
    """A score, where it has a name and is a number."""
    number = score_of(value)
    return Score(name, number, time) if isinstance(name, str) and number is not None else None


def said_text(messages: Sequence[Message]) -> bool:
    """Whether there is anything in these messages."""
    return any(each.thought or each.calls or each.results for each in messages)
