"""Pydantic AI's own attributes: `events` up to 0.8, and those of its spans of agents and tools."""

from collections.abc import Sequence
from typing import cast

from kp_batch.conversion.conversation.attributes import Event, OtelSpan, json_at, value_at
from kp_batch.conversion.conversation.messages import (
    Json,
    Message,
    ToolCall,
    ToolResult,
    as_object,
    id_text,
    list_in,
)
from kp_batch.conversion.conversation.payloads import messages_in
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun
from kp_batch.conversion.dialects.dialect import Dialect
from kp_batch.conversion.dialects.genai import spoken
from kp_batch.conversion.vendors import GENAI

_FAMILIES = (
    *("events", "all_messages_events", "pydantic_ai.", "agent_name", "model_name"),
    *("tool_arguments", "tool_response"),
)
_KINDS = {"thinking": "reasoning"}
_CHOICE = "gen_ai.choice"


def _content_of(span: OtelSpan) -> SpanContent | None:
    """Return the content of a span in this dialect; None if it has none."""
    events = _events(span, "events")
    if events:
        prompt = [event for event in events if event.name != _CHOICE]
        answer = [event for event in events if event.name == _CHOICE]
        return ModelCall(spoken(prompt), spoken(answer))
    arguments = json_at(span.attributes, "tool_arguments")
    result = value_at(span.attributes, "tool_response")
    if (name := value_at(span.attributes, "gen_ai.tool.name")) and (arguments or result):
        call_id = id_text(value_at(span.attributes, "gen_ai.tool.call.id"))
        call = ToolCall(str(name), arguments, call_id)
        return ToolRun(call, ToolResult(result, call_id, span.failed))
    conversation = _conversation(span)
    names = [value_at(span.attributes, f"{x}_name") for x in ("agent", "model")]
    if conversation or all(names):
        return AgentRun((), conversation, str(names[0] or ""))
    return None


def _input(span: OtelSpan) -> object:
    """Return what the user asks an agent; its span also has all earlier messages."""
    asked = [item for item in _new_messages(span) if as_object(item).get("role") == "user"]
    return asked[:1] or None


def _conversation(span: OtelSpan) -> Sequence[Message]:
    """Return all messages of an agent's run, which its span has."""
    return messages_in(_new_messages(span), GENAI) or spoken(_events(span, "all_messages_events"))


def _new_messages(span: OtelSpan) -> list[object]:
    """Return an agent's messages in JSON, without the history that it was given."""
    start = value_at(span.attributes, "pydantic_ai.new_message_index")
    messages = list_in(json_at(span.attributes, "pydantic_ai.all_messages"))
    return messages[start if isinstance(start, int) else 0 :]


def _events(span: OtelSpan, name: str) -> list[Event]:
    """Return the events in an attribute, which replace the span's own."""
    items = [item for item in list_in(json_at(span.attributes, name)) if isinstance(item, dict)]
    named = ((str(item.get("event.name") or ""), cast("Json", item)) for item in items)
    return [Event(kind, 0, _typed(body)) for kind, body in named if kind.startswith("gen_ai.")]


def _typed(body: Json) -> Json:
    """Return an event's body, with the kinds of its content's parts as their types."""
    inner, parts = body.get("message"), body.get("content")
    if isinstance(inner, dict):
        return {**body, "message": _typed(cast("Json", inner))}
    if isinstance(parts, list):
        return {**body, "content": [_part(part) for part in cast("list[object]", parts)]}
    return body


def _part(part: object) -> object:
    kind = as_object(part).get("kind")
    return part if kind is None else {"type": _KINDS.get(kind, kind), **as_object(part)}


DIALECT = Dialect(_FAMILIES, hook=_content_of, input=_input)
