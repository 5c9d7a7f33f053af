"""Messages, tool calls and their results, for all formats."""

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, cast

from kp_batch.bounds import breaks_off, loads

Json = Mapping[str, Any]  # an object
Role = Literal["system", "user", "assistant", "tool"]


ALIKE = 2  # see `ToolCall.likeness`


class CutContentError(Exception):
    """A text that must be JSON breaks off."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(
            f"{name} begins as JSON and breaks off after {size:,} characters: a limit has cut it, "
            "or its model stopped there; raise the limit where traces are recorded, such as "
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT, or the model's own"
        )


class JsonText(str):  # noqa: SLOT000 (its default needs a dictionary)
    """A text that is JSON by convention, with the name of its field.

    Parsing it raises an error if it breaks off.
    """

    field: str = ""

    def __new__(cls, field: str, text: str) -> Self:
        """Make the text of a field."""
        new = super().__new__(cls, text)
        new.field = field
        return new

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        """Pickle both, for another process."""
        return type(self), (self.field, str(self))

    @classmethod
    def of(cls, field: str, value: object, *, or_text: bool = False) -> object:
        """Return the value of a field; a text becomes a `JsonText`, unless it already is one.

        Args:
            field: name of the field.
            value: any value.
            or_text: whether the field may contain any text; only objects and lists then become one.
        """
        if not isinstance(value, str) or isinstance(value, cls):
            return value
        is_json = not or_text or value.lstrip()[:1] in ("{", "[")
        return cls(field, value) if is_json else value


@dataclass(slots=True)
class ToolCall:
    """An agent's call of a tool."""

    name: str
    arguments: object = None  # JSON, or a text that may be JSON; None if unknown
    id: str = ""  # empty if the format has none
    server: str | None = None  # the MCP server, if known
    _given: "_Arguments | None" = field(default=None, init=False, repr=False, compare=False)

    def is_same_as(self, other: "ToolCall") -> bool:
        """Whether another call may be the same, by its name and arguments."""
        return self.likeness(other) >= ALIKE

    def likeness(self, other: "ToolCall") -> int:
        """Return how likely another call is the same.

        Returns:
            0 if it is another call. 1 if only the name is the same. `ALIKE` if one call has all
            arguments of the other, as if defaults complete them, or if arguments are not known yet.
            More if they are equal, or by both ids.
        """
        if self.id and other.id:
            return (ALIKE + 1) * (self.id == other.id)
        if self.name != other.name:
            return 0
        one, another = self.given, other.given
        if one == another:
            return ALIKE + 1
        return ALIKE if one.has_all(another) or another.has_all(one) else 1

    @property
    def given(self) -> "_Arguments":
        """The arguments, parsed only once for all comparisons."""
        if self._given is None:
            self._given = _parted(self.arguments)
        return self._given


@dataclass
class _Arguments:
    """The arguments of a call, with all JSON in texts parsed."""

    positional: list[object]
    named: Json

    @cached_property
    def key(self) -> Hashable:
        """A key that is equal if the arguments are."""
        return _hashable(self.positional), _hashable(self.named)

    @cached_property
    def values(self) -> set[str]:
        return {compact(value) for value in (*self.positional, *self.named.values())}

    def has_all(self, other: "_Arguments") -> bool:
        """Whether these contain all arguments of another call, by name, or else by value."""
        is_named = other.named.items() <= self.named.items()
        return is_named and all(compact(value) in self.values for value in other.positional)


def _hashable(value: object) -> Hashable:
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return frozenset([(name, _hashable(inner)) for name, inner in pairs])
    if isinstance(value, list):
        return tuple([_hashable(inner) for inner in cast("list[object]", value)])
    return cast("Hashable", value)


@dataclass(slots=True)
class ToolResult:
    """The result of a tool."""

    content: object = None  # JSON, or a text; None if unknown
    id: str = ""  # of the call
    failed: bool = False


@dataclass(slots=True)
class Reasoning:
    """What a model thinks before it answers."""

    content: object  # a text, or parts of one


Piece = str | Reasoning | ToolCall | ToolResult  # of a message's content


@dataclass(slots=True)
class Message:
    """A message, with the tool calls and results in it."""

    role: Role
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()

    @property
    def thought(self) -> str:
        """Return the reasoning, then the text."""
        return joined([self.reasoning, self.text])


def joined(parts: list[str]) -> str:
    """Join texts by newlines, without empty ones."""
    return "\n".join(filter(None, parts))


def compact(value: object) -> str:
    """Return JSON without spaces, with its keys in order and its letters unescaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_text(value: object) -> str:
    """Return a text unchanged, any other value as compact JSON."""
    return str(value) if isinstance(value, str) else compact(value)


def parse_json(value: object) -> object:
    """Return the value of a text that is JSON; anything else unchanged.

    Raises:
        CutContentError: a `JsonText` breaks off.
        TooLargeError: the value exceeds a limit.
    """
    if not isinstance(value, str):
        return value
    if value.lstrip()[:1] in ("{", "[", '"'):
        try:
            return loads(value)
        except ValueError as error:
            if isinstance(value, JsonText) and breaks_off(value):
                raise CutContentError(value.field, len(value)) from error
    return str(value)


def as_object(value: object) -> Json:
    """Return an object unchanged; an empty one for any other value."""
    return cast("Json", value) if isinstance(value, dict) else {}


def object_in(value: object) -> Json:
    """Return an object, or parse one from JSON; an empty one for any other value."""
    return as_object(parse_json(value))


def list_in(value: object) -> list[object]:
    """Return a list, or parse one from JSON; an empty one for any other value."""
    items = parse_json(value)
    return cast("list[object]", items) if isinstance(items, list) else []


def parse_json_deep(value: object) -> object:
    """Return a value with all JSON in its texts parsed."""
    parsed = parse_json(value)
    if isinstance(parsed, dict):
        items = cast("dict[str, object]", parsed).items()
        return {name: parse_json_deep(item) for name, item in items}
    if isinstance(parsed, list):
        return [parse_json_deep(item) for item in cast("list[object]", parsed)]
    return parsed


def wrapped_arguments(value: object) -> tuple[list[object], Json] | None:
    """Return the positional and named arguments that decorators record of a function's call.

    They write `{"args": [...], "kwargs": {...}}`. A tool may well have a parameter named `args`,
    but hardly one named `kwargs`.
    """
    payload = object_in(value)
    if "kwargs" not in payload:
        return None
    args, kwargs = payload.get("args", []), payload["kwargs"]
    if not (isinstance(args, list) and isinstance(kwargs, dict) and len(payload) <= len(_WRAPPER)):
        return None
    return (args, kwargs) if payload.keys() <= _WRAPPER else None


def bare_arguments(value: object) -> object:
    """Return arguments without that wrapper; unchanged if there is none, or both kinds occur."""
    args, kwargs = wrapped_arguments(value) or ([], None)
    if kwargs is None or (args and kwargs):
        return value
    return (args if len(args) > 1 else args[0]) if args else kwargs


def _parted(arguments: object) -> _Arguments:
    value = parse_json_deep(bare_arguments(arguments))
    if wrapped := wrapped_arguments(value):
        return _Arguments(*wrapped)
    if isinstance(value, dict):
        return _Arguments([], cast("Json", value))
    if isinstance(value, list):
        return _Arguments(cast("list[object]", value), {})
    return _Arguments([] if value in (None, "") else [value], {})


def first_of(payload: Json, *names: str) -> Any:
    """Return the value of the first of these keys in an object; it may be None."""
    return next((payload[name] for name in names if name in payload), None)


ROLES: Mapping[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
_WRAPPER = {"args", "kwargs"}
_TEXTS = ("", "text", "input_text", "output_text", "refusal", "summary_text")


def text_of(content: object) -> str:
    """Return the text of a message's content: a text, or parts that may be texts."""
    return joined([text_of_part(part) for part in parts_of(content)])


def parts_of(content: object) -> list[object]:
    """Return the parts of a content, which may be a single part."""
    if content is None:
        return []
    return cast("list[object]", content) if isinstance(content, list) else [content]


def kind_of(part: object) -> str:
    """Return a part's type; the AI SDK's `tool-call` becomes `tool_call`."""
    return str(as_object(part).get("type") or "").replace("-", "_")


def text_of_part(part: object) -> str:
    """Return a part's text; empty if it has none."""
    if isinstance(part, str):
        return part
    payload = as_object(part)
    if not payload.get("thought") and kind_of(payload) in _TEXTS:
        for name in ("text", "content", "refusal"):
            if isinstance(text := payload.get(name), str):
                return text
    return ""


def first_id(part: Json, *names: str) -> str:
    """Return the first of these ids in an object; empty if it has none."""
    return id_text(next((part[name] for name in names if part.get(name)), None))


def plain(content: object) -> object:
    """Unwrap the text of a tool's result that only consists of text parts."""
    content = _legible(content)
    parts = parts_of(content)
    is_text = parts and all(as_object(part).get("type") == "text" for part in parts)
    return text_of(parts) if is_text else content


def _legible(content: object) -> object:
    """Return a result without what only the model's provider can read, if it ran the tool."""
    if isinstance(content, list):
        return [_legible(item) for item in cast("list[object]", content)]
    result = as_object(content)
    if not any(name.startswith("encrypted_") for name in result):
        return content
    return {name: each for name, each in result.items() if not name.startswith("encrypted_")}


def id_text(value: object) -> str:
    """Return an id as text; empty if there is none."""
    return "" if value is None else as_text(value)
