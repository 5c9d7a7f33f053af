"""The spans of Vercel's AI SDK up to 6, `ai.*`; from 7 on it has OpenTelemetry's conventions."""

from collections.abc import Sequence
from typing import cast

from kp_batch.conversion.conversation.attributes import OtelSpan, first_value, json_at, value_at
from kp_batch.conversion.conversation.messages import (
    Message,
    as_object,
    as_text,
    list_in,
    object_in,
    parse_json,
)
from kp_batch.conversion.dialects.dialect import Dialect, Kind, json_of, value_of
from kp_batch.conversion.vendors import AI_SDK, message_of
from kp_batch.conversion.vendors.ai_sdk import call_of

_RUNS = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")
_CALLS = tuple(f"{run}.do{each}" for run in _RUNS for each in ("Generate", "Stream"))
_OPERATION, _TOOL = "ai.operationId", "ai.toolCall"
_NO_AGENTS = (
    *("ai.embed", "ai.embed.doEmbed", "ai.embedMany", "ai.embedMany.doEmbed"),
    *("ai.rerank", "ai.rerank.doRerank"),
)
# `ai.result.*` up to 3.
_TEXT = ("ai.response.text", "ai.result.text")
_OBJECT = ("ai.response.object", "ai.result.object")
_TOOL_CALLS = ("ai.response.toolCalls", "ai.result.toolCalls")


def _kind(span: OtelSpan) -> Kind | None:
    operation = value_at(span.attributes, _OPERATION)
    if operation == _TOOL:
        return "tool"
    if operation in _CALLS:
        return "model"
    return "agent" if operation in _RUNS else None


def _asked(span: OtelSpan) -> Sequence[Message]:
    prompt = object_in(json_at(span.attributes, "ai.prompt"))
    text = prompt.get("prompt")
    if isinstance(text, str):
        return [Message("user", text)]
    return _messages(text) or _messages(prompt.get("messages"))


def _messages(value: object) -> list[Message]:
    """Return the messages of a list, or of its JSON."""
    messages = (message_of(item, AI_SDK) for item in map(as_object, list_in(value)))
    return [message for message in messages if message]


def _answer(span: OtelSpan) -> Sequence[Message]:
    text = first_value(span.attributes, _TEXT)
    if text is None:
        text = json_at(span.attributes, *_OBJECT)
        parse_json(text)  # raises an error if it breaks off
    reasoning = value_at(span.attributes, "ai.response.reasoning")
    calls = map(as_object, list_in(json_at(span.attributes, *_TOOL_CALLS)))
    answer = Message(
        "assistant",
        "" if text is None else as_text(cast("object", text)),
        "" if reasoning is None else as_text(cast("object", reasoning)),
        tuple(map(call_of, calls)),
    )
    return [answer] if answer.thought or answer.calls else []


DIALECT = Dialect(
    families=("ai.",),
    kinds={_OPERATION: [each.lower() for each in (_TOOL, *_RUNS, *_CALLS, *_NO_AGENTS)]},
    kind=_kind,
    prompt=lambda span: _messages(json_at(span.attributes, "ai.prompt.messages")),
    answer=_answer,
    asked=_asked,
    answered=_answer,
    agent=value_of("ai.telemetry.functionId"),
    tool=value_of("ai.toolCall.name"),
    call_id=value_of("ai.toolCall.id"),
    arguments=json_of("ai.toolCall.args"),
    result=json_of("ai.toolCall.result"),
    input=json_of("ai.prompt", "ai.prompt.messages"),
)
