"""The spans of Vercel's AI SDK up to 6, `ai.*`; from 7 on it has OpenTelemetry's conventions."""

from collections.abc import Sequence
from typing import cast

from kp_batch.conversion.conversation.attributes import OtelSpan, first_value, value_at
from kp_batch.conversion.conversation.messages import (
    ROLES,
    Json,
    Message,
    Role,
    ToolCall,
    ToolResult,
    as_object,
    as_text,
    first_of,
    id_text,
    joined,
    list_in,
    object_in,
)
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun

FAMILIES = ("ai.",)
_RUNS = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")
_CALLS = tuple(f"{run}.do{kind}" for run in _RUNS for kind in ("Generate", "Stream"))
_TOOL = "ai.toolCall"
# `ai.result.*` up to 3.
_TEXT = ("ai.response.text", "ai.result.text", "ai.response.object", "ai.result.object")
_TOOL_CALLS = ("ai.response.toolCalls", "ai.result.toolCalls")


def content_of(span: OtelSpan) -> SpanContent | None:
    """The content of a span in this dialect; None if it has none."""
    operation = value_at(span.attributes, "ai.operationId")
    if operation == _TOOL:
        return _run(span)
    if operation in _CALLS:
        prompt = _messages(value_at(span.attributes, "ai.prompt.messages"))
        return ModelCall(prompt, _answer(span))
    if operation in _RUNS:
        name = value_at(span.attributes, "ai.telemetry.functionId")
        return AgentRun(_prompt(span), _answer(span), str(name or ""))
    return None


def payload(span: OtelSpan) -> object:
    """The input of a span; None if it has none."""
    return first_value(span.attributes, ("ai.prompt", "ai.prompt.messages"))


def _run(span: OtelSpan) -> ToolRun:
    name, call_id = (value_at(span.attributes, f"{_TOOL}.{x}") for x in ("name", "id"))
    arguments, result = (value_at(span.attributes, f"{_TOOL}.{x}") for x in ("args", "result"))
    call = ToolCall(str(name or ""), arguments, id_text(call_id))
    return ToolRun(call, ToolResult(result, call.id, span.failed))


def _prompt(span: OtelSpan) -> Sequence[Message]:
    prompt = object_in(value_at(span.attributes, "ai.prompt"))
    text = prompt.get("prompt")
    if isinstance(text, str):
        return [Message("user", text)]
    return _messages(text) or _messages(prompt.get("messages"))


def _messages(value: object) -> list[Message]:
    """The messages of a list, or of the JSON of one."""
    items = map(as_object, list_in(value))
    return [_message(role, item) for item in items if (role := ROLES.get(str(item.get("role"))))]


def _message(role: Role, item: Json) -> Message:
    content = item.get("content")
    if isinstance(content, str):
        return Message(role, content)
    parts = [(part.get("type"), part) for part in map(as_object, list_in(content))]
    return Message(
        role,
        text=joined([_text_of(part) for kind, part in parts if kind == "text"]),
        reasoning=joined([_text_of(part) for kind, part in parts if kind == "reasoning"]),
        calls=tuple(_call(part) for kind, part in parts if kind == "tool-call"),
        results=tuple(_result(part) for kind, part in parts if kind == "tool-result"),
    )


def _text_of(part: Json) -> str:
    return text if isinstance(text := part.get("text"), str) else ""


def _call(call: Json) -> ToolCall:
    name, arguments = call.get("toolName"), first_of(call, "input", "args")  # the latter up to 4
    return ToolCall(str(name or ""), arguments, id_text(call.get("toolCallId")))


def _result(part: Json) -> ToolResult:
    id_, output = id_text(part.get("toolCallId")), part.get("output")
    if not isinstance(output, dict):  # up to 4
        return ToolResult(part.get("result"), id_, bool(part.get("isError")))
    kind, value = output.get("type"), first_of(cast("Json", output), "value", "reason")
    parts = [as_object(part) for part in list_in(value)] if kind == "content" else []
    if parts and all(part.get("type") == "text" for part in parts):
        value = joined([_text_of(part) for part in parts])
    return ToolResult(value, id_, str(kind).startswith(("error", "execution-denied")))


def _answer(span: OtelSpan) -> Sequence[Message]:
    text = first_value(span.attributes, _TEXT)
    reasoning = value_at(span.attributes, "ai.response.reasoning")
    calls = map(as_object, list_in(first_value(span.attributes, _TOOL_CALLS)))
    answer = Message(
        "assistant",
        "" if text is None else as_text(cast("object", text)),
        "" if reasoning is None else as_text(cast("object", reasoning)),
        tuple(map(_call, calls)),
    )
    return [answer] if answer.thought or answer.calls else []
