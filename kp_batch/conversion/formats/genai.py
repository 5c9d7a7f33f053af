"""OpenTelemetry's conventions of spans: `gen_ai.*`, with older events and vendors' own keys."""

from collections.abc import Iterator, Sequence
from typing import cast

from kp_batch.conversion.conversation.attributes import (
    Event,
    OtelSpan,
    Score,
    first_value,
    list_at,
    scores_of,
    value_at,
)
from kp_batch.conversion.conversation.messages import (
    Json,
    Message,
    ToolCall,
    ToolResult,
    list_in,
    message_of,
    object_in,
    parse_json,
)
from kp_batch.conversion.conversation.payloads import messages_in
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun

_MODEL = ("chat", "text_completion", "generate_content", "call_llm")
_AGENT = ("invoke_agent", "create_agent", "invoke_workflow", "plan")
_TOOL, _RETRIEVER = "execute_tool", "retrieval"
_OPERATIONS = (*_MODEL, *_AGENT, _TOOL, _RETRIEVER)
_PROMPT = "gen_ai.input.messages"
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
    """The content of a span in this dialect; None if it has none."""
    operation = value_at(span.attributes, "gen_ai.operation.name")
    is_known = operation in _OPERATIONS
    if not is_known:
        operation = _guess(span)
    if operation in _MODEL:
        return ModelCall(_prompt(span), _answer(span), may_wrap=not is_known)
    if operation in _AGENT:
        return AgentRun(_prompt(span), _answer(span))
    if operation in (_TOOL, _RETRIEVER):
        name = value_at(span.attributes, "gen_ai.tool.name")
        name = str(name or span.name.removeprefix(f"{operation} "))
        call_id = str(value_at(span.attributes, "gen_ai.tool.call.id") or "")
        return ToolRun(
            ToolCall(name, first_value(span.attributes, _ARGUMENTS), call_id),
            ToolResult(first_value(span.attributes, _RESULT), call_id, span.failed),
            is_retriever=operation == _RETRIEVER,
        )
    return None


def payload(span: OtelSpan) -> object:
    """The input of a span; None if it has none."""
    value = _attribute(span, _PROMPT)
    if value is not None:
        return value
    return [_usual(event) for event in span.events if event.name in _SPEAKERS] or None


def scores(span: OtelSpan) -> list[Score]:
    """The scores of a span."""
    name, value = "gen_ai.evaluation.name", "gen_ai.evaluation.score.value"
    return scores_of(
        (value_at(event.attributes, name), value_at(event.attributes, value), event.time)
        for event in span.events
        if event.name == "gen_ai.evaluation.result"
    )


def _guess(span: OtelSpan) -> str | None:
    """The operation of a span that names none of these."""
    if value_at(span.attributes, "gen_ai.tool.name"):
        return _TOOL
    speaks = any(event.name in _SPEAKERS for event in span.events)
    return _MODEL[0] if speaks or _attribute(span, _ANSWER) is not None else None


def _attribute(span: OtelSpan, name: str) -> object:
    """An attribute of the span, or of one of its events."""
    values = (value_at(x.attributes, name) for x in (span, *span.events))
    return next((value for value in values if value is not None), None)


def _prompt(span: OtelSpan) -> Sequence[Message]:
    messages = messages_in(_attribute(span, _PROMPT))
    return messages or _spoken(event for event in span.events if event.name != _CHOICE)


def _answer(span: OtelSpan) -> Sequence[Message]:
    messages = messages_in(_attribute(span, _ANSWER))
    messages = messages or _spoken(event for event in span.events if event.name == _CHOICE)
    return messages or _vendors_answer(value_at(span.attributes, "gen_ai.output"))


def _spoken(events: Iterator[Event]) -> list[Message]:
    messages = (message_of(_usual(event)) for event in events if event.name in _SPEAKERS)
    return [message for message in messages if message]


def _usual(event: Event) -> Json:
    """The message of an event, which is its attributes, or JSON in one of them."""
    body = object_in(value_at(event.attributes, "gen_ai.event.content"))
    fields = {**event.attributes, **body}
    inner = parse_json(fields.get("message"))
    if isinstance(inner, dict):
        fields |= cast("Json", inner)
    elif isinstance(inner, str):
        fields["content"] = inner
    message: dict[str, object] = {"role": _SPEAKERS[event.name]}
    if "content" in fields:
        message["content"] = fields["content"]
    if calls := list_at(fields, "tool_calls"):
        message["tool_calls"] = calls
    if (call_id := fields.get("id")) is not None:
        message["tool_call_id"] = call_id
    return message


def _vendors_answer(value: object) -> list[Message]:
    """The answer that any-agent records: a text, or JSON of tool calls."""
    if not isinstance(value, str):
        return []
    items = list_in(value)
    if items and all(value_at(item, "tool.name") for item in items):
        pairs = ((value_at(item, "tool.name"), value_at(item, "tool.args")) for item in items)
        return [Message("assistant", calls=tuple(ToolCall(str(x), y) for x, y in pairs))]
    return [Message("assistant", value)]
