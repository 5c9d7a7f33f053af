"""OpenTelemetry's spans, their attributes (dotted or nested), and scores."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from math import isfinite
from typing import Any, cast

from kp_batch.conversion.conversation.messages import (
    Json,
    JsonText,
    as_object,
    parse_json,
)

_AGENT_SPAN = re.compile(r"(?:invoke_agent|agent_run)(?: (?:\[(.*)\]|(.*)))?")
# Raised by a tool that waits for its user, or hands over to another agent.
_PAUSE = re.compile(
    r"(?:[\w.]*\.)?(?:GraphInterrupt|NodeInterrupt|GraphBubbleUp|ParentCommand"
    r"|CallDeferred|ApprovalRequired)\b"
)


class FlatAttributes(dict[str, Any]):
    """Attributes without nested ones; a dotted name is one key."""

    __slots__ = ()


def flat(attributes: Json) -> Json:
    """Return attributes as flat ones if none is nested: their names are found at once."""
    is_nested = dict in map(type, attributes.values())
    return attributes if is_nested else FlatAttributes(attributes)


@dataclass
class Event:
    """An event of a span."""

    name: str
    time: int  # in nanoseconds after 1970; 0 if unknown
    attributes: Json


def is_pause(error: object) -> bool:
    """Whether an error's type, or a text that begins with it, is a pause and not a failure."""
    return isinstance(error, str) and bool(_PAUSE.match(error))


@dataclass
class OtelSpan:
    """A span of OpenTelemetry."""

    id: str
    parent: str  # '' for a root
    name: str
    start: int | None  # in nanoseconds after 1970
    end: int | None
    failed: bool
    attributes: Json
    resource: Json
    events: Sequence[Event]

    def to_json(self) -> dict[str, object]:
        """Return the span as JSON."""
        return {**vars(self), "events": list(map(vars, self.events))}

    @property
    def families(self) -> frozenset[str]:
        """The families of all attribute and event names, nested or not."""
        names = chain(self.attributes, *([event.name, *event.attributes] for event in self.events))
        return frozenset(map(_family, names))

    @classmethod
    def from_json(cls, record: Json) -> "OtelSpan":
        """Make a span; its attributes are flat if none is nested. A pause is not a failure."""
        attributes = flat(record["attributes"])
        events = [Event(**event) for event in record["events"]]
        raised = (event.attributes for event in events if event.name == "exception")
        failed = record["failed"] and not any(
            is_pause(value_at(each, "exception.type")) for each in raised
        )
        changed: dict[str, Any] = {"attributes": attributes, "events": events, "failed": failed}
        return cls(**{**record, **changed})


@lru_cache(maxsize=1 << 12)
def _family(name: str) -> str:
    """Return a name up to the second dot, after which a message's number may follow."""
    return ".".join(name.split(".", 2)[:2])


def value_at(attributes: object, name: str) -> Any:
    """Return the value of a dotted name; None if there is none."""
    if isinstance(attributes, FlatAttributes):
        return attributes.get(name)
    if not isinstance(attributes, dict):
        return None
    tree = cast("Json", attributes)
    if (value := tree.get(name)) is not None:
        return value
    parts = name.split(".")
    for count in range(1, len(parts)):
        inner = tree.get(".".join(parts[:count]))
        if (value := value_at(inner, ".".join(parts[count:]))) is not None:
            return value
    return None


def first_value(attributes: object, names: tuple[str, ...]) -> Any:
    """Return the value of the first of these names that has one; None if none has."""
    for name in names:
        if (value := value_at(attributes, name)) is not None:
            return value
    return None


def json_at(attributes: object, *names: str) -> Any:
    """Return the first value of these dotted names; it is JSON by convention."""
    values = ((name, value_at(attributes, name)) for name in names)
    found = (JsonText.of(name, value) for name, value in values if value is not None)
    return next(found, None)


def first(texts: Iterable[str | None]) -> str | None:
    """Return the first text that is not empty; None if there is none."""
    return next(filter(None, texts), None)


def first_text(holders: Iterable[object], *names: str) -> str | None:
    """Return the first value that is not an empty text, by holder, then by name."""
    for holder in holders:
        for name in names:
            value = value_at(holder, name)
            if _is_plain(value) and (text := _text(value)):
                return text
    return None


def agent_name(span: str) -> str:
    """Return the name of the agent in the name of its span; '' if there is none."""
    match = _AGENT_SPAN.fullmatch(span)
    return match[1] or match[2] or "" if match else span


def list_at(attributes: object, name: str) -> list[object]:
    """Return the items of a list: one value, its JSON, or a value for each (`NAME.0.KEY`)."""
    value = parse_json(json_at(attributes, name))
    if isinstance(value, list):
        return cast("list[object]", value)
    items: dict[int, dict[str, object]] = {}
    prefix = f"{name}."
    for key, value in as_object(attributes).items():
        if key.startswith(prefix):
            number, _, rest = key.removeprefix(prefix).partition(".")
            if number.isdecimal():
                items.setdefault(int(number), {})[rest] = value
    return [items[number] for number in sorted(items)]


def texts(attributes: Json, prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the texts of each attribute, with its dotted name."""
    for key, value in attributes.items():
        name, parsed = f"{prefix}{key}", parse_json(value)
        if isinstance(value, dict) or (isinstance(parsed, dict) and name == "metadata"):
            yield from texts(cast("Json", parsed), f"{name}.")
        elif isinstance(parsed, list):
            yield name, [_text(item) for item in cast("list[object]", parsed) if _is_plain(item)]
        elif _is_plain(value):
            yield name, [_text(value)]


def _is_plain(value: object) -> bool:
    return isinstance(value, str | bool | int | float)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(slots=True)
class Score:
    """A judgement of a trace, or of one of its spans."""

    name: str
    value: float
    time: int = 0  # in nanoseconds after 1970


def scores_of(rows: Iterable[tuple[object, object, int | None]]) -> list[Score]:
    """Return the scores in rows of name, value and time that have a name and a finite number."""
    numbers = ((name, score_of(value), time or 0) for name, value, time in rows)
    return [Score(x, y, z) for x, y, z in numbers if isinstance(x, str) and y is not None]


def score_of(value: object) -> float | None:
    """Return a score as a number; None if it is not a finite number."""
    if not isinstance(value, bool | int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
