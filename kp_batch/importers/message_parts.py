"""The parts of a message's content: text, reasoning, tool calls and their results."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from kp_batch.importers.messages import Json, ToolCall, ToolResult, as_text, joined


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
    kind = cast("Json", part).get("type") if isinstance(part, Mapping) else None
    return str(kind or "").replace("-", "_")


def text_of_part(part: object) -> str:
    """A part's text; empty where it is none."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("thought"):
        return ""
    payload = cast("Json", part)
    if kind_of(part) in ("", "text", "input_text", "output_text", "refusal", "summary_text"):
        for name in ("text", "content", "refusal"):
            if isinstance(payload.get(name), str):
                return payload[name]
    return ""


def reasoning_of(part: object) -> str:
    """A part's reasoning; empty where it is none."""
    if not isinstance(part, Mapping):
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
        if not isinstance(part, Mapping):
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
        if not isinstance(part, Mapping):
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
    if isinstance(given, Mapping) and {*cast("Json", given)} == {"type", "value"}:
        return cast("Json", given)["value"]
    if isinstance(given, list) and given and all(kind_of(each) == "text" for each in given):
        return joined([text_of_part(each) for each in cast("list[object]", given)])
    return given


def id_text(value: object) -> str:
    """An id as text; empty where there is none."""
    return "" if value is None else as_text(value)
