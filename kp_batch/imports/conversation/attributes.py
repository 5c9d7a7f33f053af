"""OpenTelemetry's spans as every transport tells them, their attributes, and scores.

Some transports keep attributes under dotted names, and others nested.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from operator import attrgetter
from typing import Any, cast

from kp_batch.imports.conversation.messages import Json, parse_json

_AGENT_SPAN = re.compile(r"(?:invoke_agent|agent_run)(?: (?:\[(.*)\]|(.*)))?")


class FlatAttributes(dict[str, Any]):
    """Attributes of which none is a tree: what a name does not find stands nowhere within.

    Attributes:
        heads: what stands before the first dot of their names.
    """

    __slots__ = ("heads",)

    def __init__(self, attributes: Json) -> None:
        super().__init__(attributes)
        self.heads = {name.partition(".")[0] for name in self}


@dataclass(slots=True)
class Event:
    """What happened within a span."""

    name: str
    time: int  # in nanoseconds after 1970; 0 if it is not told
    attributes: Json


@dataclass(slots=True)
class OtelSpan:
    """One span of OpenTelemetry."""

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
        told = dict(zip(self.__slots__, _SPAN(self), strict=True))
        return {**told, "events": [asdict(event) for event in self.events]}

    @classmethod
    def of(cls, record: Json) -> "OtelSpan":
        """The span that a record tells of."""
        attributes = record["attributes"]
        nests = dict in map(type, attributes.values())
        events = [Event(**each) for each in record["events"]]
        flat = attributes if nests else FlatAttributes(attributes)
        told: dict[str, Any] = {**record, "attributes": flat, "events": events}
        return cls(**told)


_SPAN = attrgetter(*OtelSpan.__slots__)


def value_at(attributes: object, name: str) -> Any:
    """The value of a dotted name; None if there is none."""
    if isinstance(attributes, FlatAttributes):
        return attributes.get(name)
    if not isinstance(attributes, dict):
        return None
    tree = cast("Json", attributes)
    if (found := tree.get(name)) is not None:
        return found
    parts = name.split(".")
    for count in range(1, len(parts)):
        head, rest = ".".join(parts[:count]), ".".join(parts[count:])
        found = value_at(tree.get(head), rest)
        if found is not None:
            return found
    return None


def first_told(attributes: object, names: tuple[str, ...]) -> Any:
    """The value of the first of these names that has one; None if none has."""
    for name in names:
        if (found := value_at(attributes, name)) is not None:
            return found
    return None


def first(texts: Iterable[str | None]) -> str | None:
    """The first text that is not empty; None if there is none."""
    return next(filter(None, texts), None)


def first_text(holders: Iterable[object], *names: str) -> str | None:
    """What the first of these that has one of these names holds there, as text."""
    for holder in holders:
        if isinstance(holder, FlatAttributes) and holder.keys().isdisjoint(names):
            continue
        for name in names:
            found = value_at(holder, name)
            if found is not None and _is_plain(found) and (text := _text(found)):
                return text
    return None


def agent_named(span: str) -> str:
    """The name of the agent that a span with this name is a run of; '' if it has none."""
    found = _AGENT_SPAN.fullmatch(span)
    return found[1] or found[2] or "" if found else span


def listed(attributes: object, name: str) -> list[object]:
    """The values of a list, which may be told as one, as JSON, or item by item (`NAME.0.KEY`)."""
    if isinstance(attributes, FlatAttributes) and name.partition(".")[0] not in attributes.heads:
        return []
    found = parse_json(value_at(attributes, name))
    if isinstance(found, list):
        return cast("list[object]", found)
    if not isinstance(attributes, dict):
        return []
    items: dict[int, dict[str, object]] = {}
    for key, value in cast("Json", attributes).items():
        number, _, rest = key.removeprefix(f"{name}.").partition(".")
        if key.startswith(f"{name}.") and number.isdecimal():
            items.setdefault(int(number), {})[rest] = value
    return [items[number] for number in sorted(items)]


def texts(attributes: Json, prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """Each attribute by its dotted name, and what it holds as texts."""
    for key, value in attributes.items():
        name, found = f"{prefix}{key}", parse_json(value)
        if isinstance(value, dict) or (isinstance(found, dict) and name == "metadata"):
            yield from texts(cast("Json", found), f"{name}.")
        elif isinstance(found, list):
            yield name, [_text(each) for each in cast("list[object]", found) if _is_plain(each)]
        elif _is_plain(value):
            yield name, [_text(value)]


def _is_plain(value: object) -> bool:
    return isinstance(value, str | bool | int | float)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(slots=True)
class Score:
    """A judgement of a trace, or of a span of it."""

    name: str
    value: float
    time: int = 0  # in nanoseconds after 1970


def scores_of(told: Iterable[tuple[object, object, int | None]]) -> list[Score]:
    """The scores among names, values and times: those that have a name, and are numbers."""
    numbers = ((name, score_of(value), time or 0) for name, value, time in told)
    return [Score(x, y, z) for x, y, z in numbers if isinstance(x, str) and y is not None]


def score_of(value: object) -> float | None:
    """A score as a number; None, as if there were none, of what is no finite number."""
    if not isinstance(value, bool | int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
