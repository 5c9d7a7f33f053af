"""OpenInference's dialect of spans: `openinference.span.kind`, `llm.*`, `tool.*`, annotations."""

from collections.abc import Sequence

from kp_batch.imports.conversation.attributes import (
    FlatAttributes,
    OtelSpan,
    Score,
    agent_named,
    first_told,
    listed,
    scores_of,
    value_at,
)
from kp_batch.imports.conversation.messages import Json, Message, ToolCall, ToolResult, message_of
from kp_batch.imports.conversation.payloads import messages_in
from kp_batch.imports.conversation.spans import (
    AgentRun,
    ModelCall,
    SpanContent,
    ToolRun,
    says_anything,
)

_HIDDEN = "__REDACTED__"  # stands where content was left out on purpose
_HEADS = ("openinference", "input", "annotations", "evaluations", "trace")  # of names
_CALLED = "message.tool_call_id"
_FEEDBACK = {"annotations": "annotation", "evaluations": "evaluation"}


def is_spoken(span: OtelSpan) -> bool:
    """Whether a span may tell anything in this dialect."""
    attributes = span.attributes
    return not (isinstance(attributes, FlatAttributes) and attributes.heads.isdisjoint(_HEADS))


def content_of(span: OtelSpan) -> SpanContent | None:
    """What a span tells of an agent; None if it tells nothing in this dialect."""
    kind = str(value_at(span.attributes, "openinference.span.kind") or "").upper()
    if kind == "LLM":
        return ModelCall(_given(span), _answer(span))
    if kind in ("TOOL", "RETRIEVER"):
        name = value_at(span.attributes, "tool.name") or span.name
        called = str(value_at(span.attributes, "tool.id") or "")
        output = first_told(span.attributes, ("output.value", "retrieval.documents"))
        return ToolRun(
            ToolCall(str(name), payload(span), called),
            ToolResult(_shown(output), called, span.failed),
            is_retriever=kind == "RETRIEVER",
        )
    if kind == "AGENT":
        given, answer = (_messages(span, f"llm.{each}_messages") for each in ("input", "output"))
        return AgentRun(given, answer, agent_named(span.name))
    return None


def payload(span: OtelSpan) -> object:
    """The input of a span; None if it is not told."""
    return _shown(value_at(span.attributes, "input.value"))


def scores(span: OtelSpan, scope: str = "") -> list[Score]:
    """The scores of a span; in the scope `trace.` those of the trace, which stand at any."""
    return scores_of(
        (value_at(item, f"{one}.name"), value_at(item, f"{one}.score"), span.end or span.start)
        for several, one in _FEEDBACK.items()
        for item in listed(span.attributes, scope + several)
    )


def _given(span: OtelSpan) -> Sequence[Message]:
    messages = _messages(span, "llm.input_messages")
    if messages:
        return messages
    if prompts := _texts(span, "llm.prompts", "prompt.text"):
        return [Message("user", text) for text in prompts]
    return messages_in(payload(span))


def _answer(span: OtelSpan) -> Sequence[Message]:
    messages = _messages(span, "llm.output_messages")
    if says_anything(messages):
        return messages
    if choices := _texts(span, "llm.choices", "completion.text"):
        return [Message("assistant", text) for text in choices]
    value = _shown(value_at(span.attributes, "output.value"))
    found = [each for each in messages_in(value) if each.role == "assistant"]
    if not found and isinstance(value, str) and not messages:
        return [Message("assistant", value)]
    return found


def _texts(span: OtelSpan, several: str, one: str) -> list[str]:
    """What models without messages are given, or give back."""
    found = (_shown(value_at(each, one)) for each in listed(span.attributes, several))
    return [str(text) for text in found if text]


def _messages(span: OtelSpan, name: str) -> list[Message]:
    found = (message_of(_usual(each)) for each in listed(span.attributes, name))
    return [each for each in found if each]


def _usual(item: object) -> Json:
    """A message in the shape of the conventions' parts."""
    role, text = value_at(item, "message.role"), _shown(value_at(item, "message.content"))
    parts = [_part(each) for each in listed(item, "message.contents")]
    if text is not None:  # which stands among the parts once more
        parts = [part for part in parts if part["type"] != "text"]
        parts.append({"type": "text", "text": text})
    calls = [_call(each) for each in listed(item, "message.tool_calls")]
    if name := value_at(item, "message.function_call_name"):
        given = value_at(item, "message.function_call_arguments_json")
        calls.append({"name": name, "arguments": given})
    if role == "tool":
        found = [str(part["text"]) for part in parts if part.get("text") is not None]
        content = "\n".join(found) if found else None
        return {"role": role, "content": content, "tool_call_id": value_at(item, _CALLED)}
    return {"role": role, "content": parts, "tool_calls": calls}


def _part(item: object) -> dict[str, object]:
    name = value_at(item, "tool_call.function.name")
    if name is not None:
        return {"type": "tool_use", **_call(item)}
    text = _shown(value_at(item, "message_content.text"))
    return {"type": value_at(item, "message_content.type") or "text", "text": text}


def _call(item: object) -> dict[str, object]:
    return {
        "id": value_at(item, "tool_call.id"),
        "name": value_at(item, "tool_call.function.name"),
        "arguments": value_at(item, "tool_call.function.arguments"),
    }


def _shown(value: object) -> object:
    return None if value == _HIDDEN else value
