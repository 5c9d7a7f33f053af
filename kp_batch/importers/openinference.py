"""OpenInference's dialect of spans: `openinference.span.kind`, `llm.*`, `tool.*`, annotations."""

from collections.abc import Iterator, Sequence

from kp_batch.importers.attributes import agent_named, listed, told
from kp_batch.importers.message_json import message_of
from kp_batch.importers.messages import Json, Message, ToolCall, ToolResult, parsed
from kp_batch.importers.payloads import messages_in
from kp_batch.importers.span import (
    AgentRun,
    ModelCall,
    Said,
    Score,
    Span,
    ToolRun,
    said_text,
    score,
)

_HIDDEN = "__REDACTED__"  # stands where content was left out on purpose
_CALLED = "message.tool_call_id"
_FEEDBACK = {"annotations": "annotation", "evaluations": "evaluation"}


def said(span: Span) -> Said | None:
    """What a span says; None if it says nothing in this dialect."""
    kind = _kind(span)
    if kind == "LLM":
        return ModelCall(_given(span), _answer(span))
    if kind == "TOOL":
        name = told(span.attributes, "tool.name") or span.name
        called = str(told(span.attributes, "tool.id") or "")
        return ToolRun(
            ToolCall(str(name), payload(span), called),
            ToolResult(_shown(told(span.attributes, "output.value")), called, span.failed),
        )
    if kind == "AGENT":
        return AgentRun(
            _messages(span, "llm.input_messages"), _messages(span, "llm.output_messages")
        )
    return None


def payload(span: Span) -> object:
    """The input of a span; None if it is not told."""
    return _shown(told(span.attributes, "input.value"))


def agent(span: Span) -> str:
    """The name of the agent that a span is a run of; '' if it is none."""
    return agent_named(span.name) if _kind(span) == "AGENT" else ""


def scores(span: Span) -> Iterator[Score]:
    """The scores of a span."""
    yield from _scores(span, "")


def trace_scores(span: Span) -> Iterator[Score]:
    """The scores of the whole trace, which may stand at any span."""
    yield from _scores(span, "trace.")


def _kind(span: Span) -> str:
    return str(told(span.attributes, "openinference.span.kind") or "").upper()


def _scores(span: Span, scope: str) -> Iterator[Score]:
    for several, one in _FEEDBACK.items():
        for item in listed(span.attributes, scope + several):
            name, value = told(item, f"{one}.name"), told(item, f"{one}.score")
            found = score(name, value, span.end or span.start or 0)
            if found:
                yield found


def _given(span: Span) -> Sequence[Message]:
    messages = _messages(span, "llm.input_messages")
    if messages:
        return messages
    if prompts := _texts(span, "llm.prompts", "prompt.text"):
        return [Message("user", text) for text in prompts]
    value = payload(span)
    is_text = isinstance(value, str) and parsed(value) is value
    return messages_in(value) or ([Message("user", str(value))] if is_text and value else [])


def _answer(span: Span) -> Sequence[Message]:
    messages = _messages(span, "llm.output_messages")
    if said_text(messages):
        return messages
    if choices := _texts(span, "llm.choices", "completion.text"):
        return [Message("assistant", text) for text in choices]
    value = _shown(told(span.attributes, "output.value"))
    found = [each for each in messages_in(value) if each.role == "assistant"]
    if not found and isinstance(value, str) and not messages:
        return [Message("assistant", value)]
    return found


def _texts(span: Span, several: str, one: str) -> list[str]:
    """What models without messages are given, or give back."""
    found = (_shown(told(each, one)) for each in listed(span.attributes, several))
    return [str(text) for text in found if text]


def _messages(span: Span, name: str) -> list[Message]:
    found = (message_of(_usual(each)) for each in listed(span.attributes, name))
    return [each for each in found if each]


def _usual(item: object) -> Json:
    """A message in the shape of the conventions' parts."""
    role, text = told(item, "message.role"), _shown(told(item, "message.content"))
    parts = [_part(each) for each in listed(item, "message.contents")]
    if text is not None:  # which stands among the parts once more
        parts = [each for each in parts if each["type"] != "text"]
        parts.append({"type": "text", "text": text})
    calls = [_call(each) for each in listed(item, "message.tool_calls")]
    if name := told(item, "message.function_call_name"):
        given = told(item, "message.function_call_arguments_json")
        calls.append({"name": name, "arguments": given})
    if role == "tool":
        found = [str(each["text"]) for each in parts if each.get("text") is not None]
        content = "\n".join(found) if found else None
        return {"role": role, "content": content, "tool_call_id": told(item, _CALLED)}
    return {"role": role, "content": parts, "tool_calls": calls}


def _part(item: object) -> dict[str, object]:
    name = told(item, "tool_call.function.name")
    if name is not None:
        return {"type": "tool_use", **_call(item)}
    text = _shown(told(item, "message_content.text"))
    return {"type": told(item, "message_content.type") or "text", "text": text}


def _call(item: object) -> dict[str, object]:
    return {
        "id": told(item, "tool_call.id"),
        "name": told(item, "tool_call.function.name"),
        "arguments": told(item, "tool_call.function.arguments"),
    }


def _shown(value: object) -> object:
    return None if value == _HIDDEN else value
