"""What agents say and do, as every format tells it: messages, tool calls and their results."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from kp_batch.bounded_json import loads

Json = Mapping[str, Any]  # an object
Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class ToolCall:
    """An agent's call of a tool."""

    name: str
    arguments: object = None  # JSON, or a text that may be JSON; None if they are not told
    id: str = ""  # empty where the format has none
    server: str | None = None  # the MCP server, where it is known

    def is_same_as(self, other: "ToolCall") -> bool:
        """Whether another one may tell of the same call."""
        if self.id and other.id:
            return self.id == other.id
        one, another = unfolded(self.arguments), unfolded(other.arguments)
        # Frameworks that stream their calls tell them with no arguments yet: {}.
        return self.name == other.name and (not one or not another or one == another)


@dataclass(frozen=True)
class ToolResult:
    """What a tool gave back."""

    content: object = None  # JSON, or a text; None if it is not told
    id: str = ""  # of the call
    failed: bool = False


@dataclass(frozen=True)
class Message:
    """One message; who speaks, what is said, and the tools within."""

    role: Role
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()

    @property
    def thought(self) -> str:
        """The reasoning, then the text."""
        return joined([self.reasoning, self.text])


def joined(parts: list[str]) -> str:
    """Texts with a newline between, without the empty ones."""
    return "\n".join(part for part in parts if part)


def compact(value: object) -> str:
    """JSON without spaces, with its keys in their order and its letters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_text(value: object) -> str:
    """A text as it is, any other value as compact JSON."""
    return value if isinstance(value, str) else compact(value)


def parsed(value: object) -> object:
    """What a text holds that is JSON; anything else as it is.

    Raises:
        TooLargeError: it passes a limit.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            return loads(value)
        except ValueError:
            return value
    return value


def object_in(value: object) -> Json:
    """An object, or what a text holds that is one in JSON; empty if it is none."""
    found = parsed(value)
    return cast("Json", found) if isinstance(found, Mapping) else {}


def list_in(value: object) -> list[object]:
    """A list, or what a text holds that is one in JSON; empty if it is none."""
    found = parsed(value)
    return cast("list[object]", found) if isinstance(found, list) else []


def unfolded(value: object) -> object:
    """What a value holds, with all the texts within that are JSON read."""
    found = parsed(value)
    if isinstance(found, dict):
        return {name: unfolded(each) for name, each in cast("dict[str, object]", found).items()}
    if isinstance(found, list):
        return [unfolded(each) for each in cast("list[object]", found)]
    return found
