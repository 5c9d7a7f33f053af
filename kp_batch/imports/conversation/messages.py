"""What agents say and do, as every format tells it: messages, tool calls and their results."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from kp_batch.limits import loads

Json = Mapping[str, Any]  # an object
Role = Literal["system", "user", "assistant", "tool"]


@dataclass(slots=True)
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
        one, another = parse_json_deep(self.arguments), parse_json_deep(other.arguments)
        # Frameworks that stream their calls tell them with no arguments yet: {}.
        return self.name == other.name and (not one or not another or one == another)


@dataclass(slots=True)
class ToolResult:
    """What a tool gave back."""

    content: object = None  # JSON, or a text; None if it is not told
    id: str = ""  # of the call
    failed: bool = False


@dataclass(slots=True)
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
    return "\n".join(filter(None, parts))


def compact(value: object) -> str:
    """JSON without spaces, with its keys in their order and its letters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_text(value: object) -> str:
    """A text as it is, any other value as compact JSON."""
    return value if isinstance(value, str) else compact(value)


def parse_json(value: object) -> object:
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
    found = parse_json(value)
    return cast("Json", found) if isinstance(found, dict) else {}


def list_in(value: object) -> list[object]:
    """A list, or what a text holds that is one in JSON; empty if it is none."""
    found = parse_json(value)
    return cast("list[object]", found) if isinstance(found, list) else []


def parse_json_deep(value: object) -> object:
    """What a value holds, with all the texts within that are JSON read."""
    found = parse_json(value)
    if isinstance(found, dict):
        return {
            name: parse_json_deep(each) for name, each in cast("dict[str, object]", found).items()
        }
    if isinstance(found, list):
        return [parse_json_deep(each) for each in cast("list[object]", found)]
    return found


ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "model", "AIMessageChunk"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function"), "tool"),
}


# What may stand in a part beside its text; in a message beside its content; around a message.
_BESIDE_TEXT = ("thought", "function_call", "functionCall", "function_response", "functionResponse")
_BESIDE = ("tool_calls", "reasoning_content", "reasoning", "additional_kwargs")
_WRAPPERS = ("gen_ai.event.content", "lc", "data")
_BODY = ("content", "parts", "tool_calls", "function_call")
_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text")
_TEXT_KINDS = ("", *_TEXTS)


def message_of(payload: Json) -> Message | None:
    """The message that a JSON object is; None if it is none."""
    item = _response_item(payload)
    if item:
        return item
    said_by = str(payload.get("role") or payload.get("type") or "")
    role = ROLES.get(said_by) or ROLES.get(said_by.lower())
    if role is None or payload.keys().isdisjoint(_BODY):
        return None
    parts = parts_of(
        payload.get("parts") if payload.get("parts") is not None else payload.get("content")
    )
    text = joined([text_of_part(part) for part in parts])
    parts = [part for part in parts if not _is_text_alone(part)]
    if not parts and role != "tool" and payload.keys().isdisjoint(_BESIDE):
        return Message(role, text)  # as most are
    calls = [*calls_of(parts), *_tool_calls(payload)]
    results = results_of(parts)
    if role == "tool" and not results:
        content = payload.get("content", text or None)
        if isinstance(content, dict) and isinstance(content.get("function"), dict):
            return Message("system")  # LangGraph tells of the tools that there are
        results = [
            ToolResult(plain(content), id_text(payload.get("tool_call_id")), _is_failed(payload))
        ]
        text = ""
    reasoning = joined([reasoning_of(part) for part in parts] + [_beside(payload)])
    return Message(role, text, reasoning, _distinct(calls), tuple(results))


def _response_item(payload: Json) -> Message | None:
    """An item of OpenAI's responses that is no message."""
    kind = payload.get("type")
    if kind is None:
        return None
    if kind == "function_call":
        call = ToolCall(
            str(payload.get("name") or ""),
            payload.get("arguments"),
            id_text(payload.get("call_id") or payload.get("id")),
        )
        return Message("assistant", calls=(call,))
    if kind == "function_call_output":
        return Message(
            "tool", results=(ToolResult(payload.get("output"), id_text(payload.get("call_id"))),)
        )
    if kind == "reasoning" and "role" not in payload:
        return Message(
            "assistant",
            reasoning=joined([text_of_part(each) for each in parts_of(payload.get("summary"))]),
        )
    return None


def unwrapped(payload: Json) -> Json:
    """LangChain's serialised objects hold a message in `kwargs`, old exports in `data`."""
    if payload.keys().isdisjoint(_WRAPPERS):
        return payload
    event = parse_json(payload.get("gen_ai.event.content"))  # Semantic Kernel's
    if isinstance(event, dict):
        return {"role": payload.get("role"), **event}
    if payload.get("lc") and isinstance(payload.get("kwargs"), dict):
        return {"type": _lc_type(payload), **payload["kwargs"]}
    if "type" in payload and isinstance(payload.get("data"), dict) and "content" in payload["data"]:
        return {**payload["data"], "type": payload["type"]}
    return payload


def _lc_type(payload: Json) -> str:
    path = payload.get("id")
    name = str(cast("list[object]", path)[-1]) if isinstance(path, list) and path else ""
    return name.removesuffix("Chunk").removesuffix("Message").lower()


def _beside(payload: Json) -> str:
    """Reasoning that stands beside a message's content."""
    if payload.keys().isdisjoint(_BESIDE):
        return ""
    inner = payload.get("additional_kwargs")
    for each in (payload, inner if isinstance(inner, dict) else {}):
        for name in ("reasoning_content", "reasoning"):
            if isinstance(each.get(name), str):
                return each[name]
    return ""


def _tool_calls(payload: Json) -> Iterator[ToolCall]:
    if payload.keys().isdisjoint(_BESIDE):
        return
    inner = payload.get("additional_kwargs")
    beside = cast("Json", inner).get("tool_calls") if isinstance(inner, dict) else None
    listed = list_in(payload.get("tool_calls") or beside)
    for each in (cast("Json", each) for each in listed if isinstance(each, dict)):
        function = each.get("function")
        if isinstance(function, dict):
            yield ToolCall(
                str(function.get("name") or ""), function.get("arguments"), id_text(each.get("id"))
            )
        else:
            given = next(
                (each[name] for name in ("args", "arguments", "input") if name in each), None
            )
            yield ToolCall(str(each.get("name") or ""), given, id_text(each.get("id")))


def _is_failed(payload: Json) -> bool:
    return payload.get("status") == "error" or bool(payload.get("is_error"))


def _distinct(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls of one message: LangChain tells them in its content and beside it."""
    found: list[ToolCall] = []
    for call in calls:
        if not (call.id and any(call.id == each.id for each in found)):
            found.append(call)
    return tuple(found)


def text_of(content: object) -> str:
    """The text of a message's content: a text, or parts of which some are texts."""
    return joined([text_of_part(part) for part in parts_of(content)])


def parts_of(content: object) -> list[object]:
    """The parts of a content, which may be one by itself."""
    if content is None:
        return []
    return cast("list[object]", content) if isinstance(content, list) else [content]


def kind_of(part: object) -> str:
    """A part's type, with the AI SDK's `tool-call` as `tool_call`."""
    kind = cast("Json", part).get("type") if isinstance(part, dict) else None
    return str(kind or "").replace("-", "_")


def text_of_part(part: object) -> str:
    """A part's text; empty where it is none."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("thought"):
        return ""
    payload = cast("Json", part)
    if kind_of(part) in _TEXT_KINDS:
        for name in ("text", "content", "refusal"):
            if isinstance(payload.get(name), str):
                return payload[name]
    return ""


def _is_text_alone(part: object) -> bool:
    """Whether a part can hold no reasoning, no call and no result."""
    if not isinstance(part, dict):
        return True
    payload = cast("Json", part)
    return payload.get("type") in _TEXTS and payload.keys().isdisjoint(_BESIDE_TEXT)


def reasoning_of(part: object) -> str:
    """A part's reasoning; empty where it is none."""
    if not isinstance(part, dict):
        return ""
    payload = cast("Json", part)
    if payload.get("thought") is True:
        return str(payload.get("text") or "")
    if kind_of(part) not in ("thinking", "reasoning"):
        return ""
    names = ("thinking", "reasoning", "content", "text", "summary")
    found = next((payload[name] for name in names if payload.get(name)), "")
    return text_of(found) or as_text(found)


def calls_of(parts: Sequence[object]) -> Iterator[ToolCall]:
    """The tool calls among parts."""
    for part in parts:
        if not isinstance(part, dict):
            continue
        payload = cast("Json", part)
        if kind_of(part) in ("tool_call", "tool_use", "server_tool_use") or _is_bare_call(payload):
            given = next(
                (payload[name] for name in ("arguments", "input", "args") if name in payload), None
            )
            name, called = payload.get("name"), payload.get("id")
            yield ToolCall(
                str(name or payload.get("toolName") or ""),
                given,
                id_text(called or payload.get("toolCallId")),
            )
        elif isinstance(
            call := payload.get("function_call") or payload.get("functionCall"), Mapping
        ):
            yield ToolCall(str(call.get("name") or ""), call.get("args"), id_text(call.get("id")))


def _is_bare_call(part: Json) -> bool:
    """The AI SDK gives calls without a type, too."""
    return not kind_of(part) and "toolName" in part and "result" not in part


def results_of(parts: Sequence[object]) -> list[ToolResult]:
    """The tools' results among parts."""
    found: list[ToolResult] = []
    for part in parts:
        if not isinstance(part, dict):
            continue
        payload = cast("Json", part)
        if kind_of(part) in ("tool_result", "tool_call_response", "function_response"):
            given = next(
                (
                    payload[name]
                    for name in ("response", "result", "content", "output")
                    if name in payload
                ),
                None,
            )
            names = ("tool_use_id", "id", "call_id", "toolCallId")
            called = next((payload[name] for name in names if payload.get(name)), None)
            failed = payload.get("is_error") or kind_of(given).startswith("error_")
            found.append(ToolResult(plain(given), id_text(called), bool(failed)))
        elif isinstance(
            given := payload.get("function_response") or payload.get("functionResponse"), Mapping
        ):
            found.append(ToolResult(given.get("response"), id_text(given.get("id"))))
    return found


def plain(given: object) -> object:
    """Anthropic's tool results are lists of text parts, the AI SDK's have a type and a value."""
    if isinstance(given, dict) and {*cast("Json", given)} == {"type", "value"}:
        return cast("Json", given)["value"]
    if isinstance(given, list) and given and all(kind_of(each) == "text" for each in given):
        return joined([text_of_part(each) for each in cast("list[object]", given)])
    return given


def id_text(value: object) -> str:
    """An id as text; empty where there is none."""
    return "" if value is None else as_text(value)
