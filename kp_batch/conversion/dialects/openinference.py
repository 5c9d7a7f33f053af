"""OpenInference's dialect of spans: `openinference.span.kind`, `llm.*`, `tool.*`, annotations."""

from collections.abc import Sequence

from kp_batch.conversion.conversation import spans
from kp_batch.conversion.conversation.attributes import (
    FlatAttributes,
    OtelSpan,
    Score,
    agent_name,
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
    message_of,
)
from kp_batch.conversion.conversation.payloads import messages_in

_HIDDEN = "__REDACTED__"  # in the place of content that was left out on purpose
_PREFIXES = ("openinference", "input", "annotations", "evaluations", "trace")  # of names
_CALL_ID = "message.tool_call_id"
_FEEDBACK = {"annotations": "annotation", "evaluations": "evaluation"}


def content_of(span: OtelSpan) -> spans.SpanContent | None:
    """The content of a span in this dialect; None if it has none."""
    if not _is_spoken(span):
        return None
    kind = str(value_at(span.attributes, "openinference.span.kind") or "").upper()
    if kind == "LLM":
        return spans.ModelCall(_prompt(span), _answer(span))
    if kind in ("TOOL", "RETRIEVER"):
        name = value_at(span.attributes, "tool.name") or span.name
        call_id = str(value_at(span.attributes, "tool.id") or "")
        output = first_value(span.attributes, ("output.value", "retrieval.documents"))
        return spans.ToolRun(
            ToolCall(str(name), payload(span), call_id),
            ToolResult(_shown(output), call_id, span.failed),
            is_retriever=kind == "RETRIEVER",
        )
    if kind == "AGENT":
        prompt, answer = (_messages(span, f"llm.{side}_messages") for side in ("input", "output"))
        return spans.AgentRun(prompt, answer, agent_name(span.name))
    return None


def payload(span: OtelSpan) -> object:
    """The input of a span; None if it has none."""
    return _shown(value_at(span.attributes, "input.value"))


def scores(span: OtelSpan, scope: str = "") -> list[Score]:
    """The scores of a span; in the scope `trace.` those of the trace, which any span may have."""
    if not _is_spoken(span):
        return []
    return scores_of(
        (value_at(item, f"{one}.name"), value_at(item, f"{one}.score"), span.end or span.start)
        for several, one in _FEEDBACK.items()
        for item in list_at(span.attributes, scope + several)
    )


def _is_spoken(span: OtelSpan) -> bool:
    """Whether a span may have anything in this dialect."""
    names = span.attributes
    return not (isinstance(names, FlatAttributes) and names.prefixes.isdisjoint(_PREFIXES))


def _prompt(span: OtelSpan) -> Sequence[Message]:
    messages = _messages(span, "llm.input_messages")
    if messages:
        return messages
    if prompts := _texts(span, "llm.prompts", "prompt.text"):
        return [Message("user", text) for text in prompts]
    return messages_in(payload(span))


def _answer(span: OtelSpan) -> Sequence[Message]:
    messages = _messages(span, "llm.output_messages")
    if spans.has_content(messages):
        return messages
    if choices := _texts(span, "llm.choices", "completion.text"):
        return [Message("assistant", text) for text in choices]
    value = _shown(value_at(span.attributes, "output.value"))
    answer = [message for message in messages_in(value) if message.role == "assistant"]
    if not answer and isinstance(value, str) and not messages:
        return [Message("assistant", value)]
    return answer


def _texts(span: OtelSpan, several: str, one: str) -> list[str]:
    """The prompts or answers of models without messages."""
    items = (_shown(value_at(item, one)) for item in list_at(span.attributes, several))
    return [str(text) for text in items if text]


def _messages(span: OtelSpan, name: str) -> list[Message]:
    messages = (message_of(_usual(item)) for item in list_at(span.attributes, name))
    return [message for message in messages if message]


def _usual(item: object) -> Json:
    """A message in the shape of the conventions' parts."""
    role, text = value_at(item, "message.role"), _shown(value_at(item, "message.content"))
    parts = [_part(part) for part in list_at(item, "message.contents")]
    if text is not None:  # which the parts have once more
        parts = [part for part in parts if part["type"] != "text"]
        parts.append({"type": "text", "text": text})
    calls = [_call(call) for call in list_at(item, "message.tool_calls")]
    if name := value_at(item, "message.function_call_name"):
        arguments = value_at(item, "message.function_call_arguments_json")
        calls.append({"name": name, "arguments": arguments})
    if role == "tool":
        texts = [str(part["text"]) for part in parts if part.get("text") is not None]
        content = "\n".join(texts) if texts else None
        return {"role": role, "content": content, "tool_call_id": value_at(item, _CALL_ID)}
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
