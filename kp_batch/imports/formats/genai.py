"""OpenTelemetry's dialect of spans: `gen_ai.*`, with the older events and vendors' own keys."""

from collections.abc import Iterator, Sequence
from typing import cast

from kp_batch.imports.conversation.attributes import (
    Event,
    OtelSpan,
    Score,
    first_told,
    listed,
    scores_of,
    value_at,
)
from kp_batch.imports.conversation.messages import (
    Json,
    Message,
    ToolCall,
    ToolResult,
    list_in,
    message_of,
    object_in,
    parse_json,
)
from kp_batch.imports.conversation.payloads import messages_in
from kp_batch.imports.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun

_MODEL = ("chat", "text_completion", "generate_content", "call_llm")
_AGENT = ("invoke_agent", "create_agent", "invoke_workflow", "plan")
_TOOL, _RETRIEVER = "execute_tool", "retrieval"
_OPERATIONS = (*_MODEL, *_AGENT, _TOOL, _RETRIEVER)
_GIVEN = "gen_ai.input.messages"
_ANSWER = "gen_ai.output.messages"
_ARGUMENTS = ("gen_ai.tool.call.arguments", "gen_ai.tool.args", "gen_ai.retrieval.query.text")
_RESULT = (
    *("gen_ai.tool.call.result", "gen_ai.tool.call.response", "gen_ai.output"),
    "gen_ai.retrieval.documents",
)
_CHOICE = "gen_ai.choice"
_SPEAKERS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    _CHOICE: "assistant",
}


def content_of(span: OtelSpan) -> SpanContent | None:
    """What a span tells of an agent; None if it tells nothing in this dialect."""
    operation = value_at(span.attributes, "gen_ai.operation.name")
    if operation not in _OPERATIONS:
        operation = _guessed(span)
    if operation in _MODEL:
        return ModelCall(_given(span), _answer(span))
    if operation in _AGENT:
        return AgentRun(_given(span), _answer(span))
    if operation in (_TOOL, _RETRIEVER):
        name = value_at(span.attributes, "gen_ai.tool.name") or span.name.removeprefix(
            f"{operation} "
        )
        called = str(value_at(span.attributes, "gen_ai.tool.call.id") or "")
        return ToolRun(
            ToolCall(str(name), first_told(span.attributes, _ARGUMENTS), called),
            ToolResult(first_told(span.attributes, _RESULT), called, span.failed),
            is_retriever=operation == _RETRIEVER,
        )
    return None


def payload(span: OtelSpan) -> object:
    """The input of a span; None if it is not told."""
    found = _held(span, _GIVEN)
    if found is not None:
        return found
    return [_usual(event) for event in span.events if event.name in _SPEAKERS] or None


def scores(span: OtelSpan) -> list[Score]:
    """The scores of a span."""
    name, value = "gen_ai.evaluation.name", "gen_ai.evaluation.score.value"
    return scores_of(
        (value_at(event.attributes, name), value_at(event.attributes, value), event.time)
        for event in span.events
        if event.name == "gen_ai.evaluation.result"
    )


def _guessed(span: OtelSpan) -> str | None:
    """The operation of a span that does not name one of these."""
    if value_at(span.attributes, "gen_ai.tool.name"):
        return _TOOL
    speaks = any(event.name in _SPEAKERS for event in span.events)
    return _MODEL[0] if speaks or _held(span, _ANSWER) is not None else None


def _held(span: OtelSpan, name: str) -> object:
    """An attribute of the span, or of one of its events."""
    found = value_at(span.attributes, name)
    if found is not None or not span.events:
        return found
    events = (value_at(event.attributes, name) for event in span.events)
    return next((event for event in events if event is not None), None)


def _given(span: OtelSpan) -> Sequence[Message]:
    told_ones = messages_in(_held(span, _GIVEN))
    return told_ones or _spoken(event for event in span.events if event.name != _CHOICE)


def _answer(span: OtelSpan) -> Sequence[Message]:
    found = messages_in(_held(span, _ANSWER))
    found = found or _spoken(event for event in span.events if event.name == _CHOICE)
    return found or _vendors_answer(value_at(span.attributes, "gen_ai.output"))


def _spoken(events: Iterator[Event]) -> list[Message]:
    found = (message_of(_usual(event)) for event in events if event.name in _SPEAKERS)
    return [each for each in found if each]


def _usual(event: Event) -> Json:
    """The message that an event tells, which is its attributes, or JSON in one of them."""
    body = object_in(value_at(event.attributes, "gen_ai.event.content"))
    told_there = {**event.attributes, **body}
    inner = parse_json(told_there.get("message"))
    if isinstance(inner, dict):
        told_there |= cast("Json", inner)
    elif isinstance(inner, str):
        told_there["content"] = inner
    message: dict[str, object] = {"role": _SPEAKERS[event.name]}
    if "content" in told_there:
        message["content"] = told_there["content"]
    if calls := listed(told_there, "tool_calls"):
        message["tool_calls"] = calls
    if (called := told_there.get("id")) is not None:
        message["tool_call_id"] = called
    return message


def _vendors_answer(value: object) -> list[Message]:
    """What any-agent tells: a text, or JSON of tool calls."""
    if not isinstance(value, str):
        return []
    items = list_in(value)
    if items and all(value_at(each, "tool.name") for each in items):
        calls = (
            ToolCall(str(value_at(each, "tool.name")), value_at(each, "tool.args"))
            for each in items
        )
        return [Message("assistant", calls=tuple(calls))]
    return [Message("assistant", value)]
