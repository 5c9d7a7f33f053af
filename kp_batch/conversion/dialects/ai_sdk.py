"""The spans of Vercel's AI SDK up to 6, `ai.*`; from 7 on it has OpenTelemetry's conventions."""

from collections.abc import Sequence
from typing import cast

from kp_batch.conversion.conversation.attributes import OtelSpan, first_value, json_at, value_at
from kp_batch.conversion.conversation.messages import (
    Message,
    ToolCall,
    ToolResult,
    as_object,
    as_text,
    id_text,
    list_in,
    object_in,
    parse_json,
)
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun
from kp_batch.conversion.vendors import AI_SDK, message_of
from kp_batch.conversion.vendors.ai_sdk import call_of

FAMILIES = ("ai.",)
_RUNS = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")
_CALLS = tuple(f"{run}.do{kind}" for run in _RUNS for kind in ("Generate", "Stream"))
_TOOL = "ai.toolCall"
# `ai.result.*` up to 3.
_TEXT = ("ai.response.text", "ai.result.text")
_OBJECT = ("ai.response.object", "ai.result.object")
_TOOL_CALLS = ("ai.response.toolCalls", "ai.result.toolCalls")


def content_of(span: OtelSpan) -> SpanContent | None:
    """The content of a span in this dialect; None if it has none."""
    operation = value_at(span.attributes, "ai.operationId")
    if operation == _TOOL:
        return _run(span)
    if operation in _CALLS:
        prompt = _messages(json_at(span.attributes, "ai.prompt.messages"))
        return ModelCall(prompt, _answer(span))
    if operation in _RUNS:
        name = value_at(span.attributes, "ai.telemetry.functionId")
        return AgentRun(_prompt(span), _answer(span), str(name or ""))
    return None


def payload(span: OtelSpan) -> object:
    """The input of a span; None if it has none."""
    return json_at(span.attributes, "ai.prompt", "ai.prompt.messages")


def _run(span: OtelSpan) -> ToolRun:
    name, call_id = (value_at(span.attributes, f"{_TOOL}.{x}") for x in ("name", "id"))
    arguments, result = (json_at(span.attributes, f"{_TOOL}.{x}") for x in ("args", "result"))
    call = ToolCall(str(name or ""), arguments, id_text(call_id))
    return ToolRun(call, ToolResult(result, call.id, span.failed))


def _prompt(span: OtelSpan) -> Sequence[Message]:
    prompt = object_in(json_at(span.attributes, "ai.prompt"))
    text = prompt.get("prompt")
    if isinstance(text, str):
        return [Message("user", text)]
    return _messages(text) or _messages(prompt.get("messages"))


def _messages(value: object) -> list[Message]:
    """The messages of a list, or of the JSON of one."""
    told = (message_of(item, AI_SDK) for item in map(as_object, list_in(value)))
    return [message for message in told if message]


def _answer(span: OtelSpan) -> Sequence[Message]:
    text = first_value(span.attributes, _TEXT)
    if text is None:
        text = json_at(span.attributes, *_OBJECT)
        parse_json(text)  # which is an error where it breaks off
    reasoning = value_at(span.attributes, "ai.response.reasoning")
    calls = map(as_object, list_in(json_at(span.attributes, *_TOOL_CALLS)))
    answer = Message(
        "assistant",
        "" if text is None else as_text(cast("object", text)),
        "" if reasoning is None else as_text(cast("object", reasoning)),
        tuple(map(call_of, calls)),
    )
    return [answer] if answer.thought or answer.calls else []
