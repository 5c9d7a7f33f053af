"""The spans of Vercel's AI SDK up to 6, `ai.*`; from 7 on it has OpenTelemetry's conventions."""

from collections.abc import Sequence
from typing import cast

from kp_batch.conversion.conversation.attributes import OtelSpan, first_value, value_at
from kp_batch.conversion.conversation.messages import (
    Message,
    ToolCall,
    ToolResult,
    as_object,
    as_text,
    first_of,
    id_text,
    list_in,
    object_in,
)
from kp_batch.conversion.conversation.payloads import messages_in
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun

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
        return ModelCall(
            messages_in(value_at(span.attributes, "ai.prompt.messages")), _answer(span)
        )
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
    return messages_in(text) or messages_in(prompt.get("messages"))


def _answer(span: OtelSpan) -> Sequence[Message]:
    text = first_value(span.attributes, _TEXT)
    reasoning = value_at(span.attributes, "ai.response.reasoning")
    calls = map(as_object, list_in(first_value(span.attributes, _TOOL_CALLS)))
    answer = Message(
        "assistant",
        "" if text is None else as_text(cast("object", text)),
        "" if reasoning is None else as_text(cast("object", reasoning)),
        tuple(
            ToolCall(
                str(call.get("toolName") or ""),
                first_of(call, "input", "args"),
                id_text(call.get("toolCallId")),
            )
            for call in calls
        ),
    )
    return [answer] if answer.thought or answer.calls else []
