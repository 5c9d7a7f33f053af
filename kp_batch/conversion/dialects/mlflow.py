"""MLflow's spans, whose attributes are JSON: a type, inputs and outputs, `mlflow.spanType`."""

from collections.abc import Mapping, Sequence

from kp_batch.bounds import TooLargeError, loads
from kp_batch.conversion.conversation.attributes import (
    OtelSpan,
    agent_name,
    first_value,
    json_at,
    value_at,
)
from kp_batch.conversion.conversation.messages import (
    Json,
    Message,
    ToolCall,
    ToolResult,
    id_text,
    object_in,
    text_of,
)
from kp_batch.conversion.conversation.payloads import asked_in, messages_in, messages_of
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun

FAMILIES = ("mlflow.",)
MODEL = "mlflow.llm.model"
_KIND = "mlflow.spanType"
_MODELS = ("LLM", "CHAT_MODEL")
_RETRIEVER = "RETRIEVER"
_CLAUDE_CODE = "tool_name"  # whose spans are called otherwise than its tools
_CALL_IDS = ("tool_id", "tool_call_id")  # Claude Code's, LangChain's


def plain(attributes: Json) -> Json:
    """The attributes of a span as MLflow's own exporter writes them, each as JSON in a text."""
    is_json = str(attributes.get(_KIND, "")).startswith('"')
    return parsed(attributes) if is_json else attributes


def parsed(attributes: Mapping[str, object]) -> Json:
    """Attributes of which each is JSON; one that is none stays, as one that breaks off."""
    return {name: _value_of(value) for name, value in attributes.items()}


def _value_of(value: object) -> object:
    try:
        return loads(value) if isinstance(value, str) else value
    except (ValueError, TooLargeError):
        return value


def content_of(span: OtelSpan) -> SpanContent | None:
    """The content of a span in this dialect; None if it has none.

    A root of another type may be an agent, as functions and chains are.
    """
    kind = str(value_at(span.attributes, _KIND) or "").upper()
    if kind in _MODELS:
        return ModelCall(messages_in(payload(span)), _answer(span))
    if kind in ("TOOL", _RETRIEVER):
        return _run(span, is_retriever=kind == _RETRIEVER)
    if kind == "AGENT":
        return AgentRun(asked_in(payload(span)), _answer(span), agent_name(span.name))
    if kind and not span.parent:
        return AgentRun(asked_in(payload(span)), _answer(span), is_chain=True)
    return None


def payload(span: OtelSpan) -> object:
    """The input of a span; None if it has none."""
    return json_at(span.attributes, "mlflow.spanInputs")


def _answer(span: OtelSpan) -> Sequence[Message]:
    output = json_at(span.attributes, "mlflow.spanOutputs")
    if output is None:
        return ()
    if isinstance(output, list) and all(isinstance(each, str) for each in output):
        return [Message("assistant", text_of(output))]  # as DSPy has it
    return [message for message in messages_of(output) if message.role in ("assistant", "tool")]


def _run(span: OtelSpan, *, is_retriever: bool) -> ToolRun:
    name = value_at(span.attributes, _CLAUDE_CODE)
    call_id = id_text(first_value(span.attributes, _CALL_IDS))
    result = value_at(span.attributes, "mlflow.spanOutputs")
    if name:
        result = object_in(result).get("result", result)
    call = ToolCall(str(name or span.name), payload(span), call_id)
    return ToolRun(call, ToolResult(result, call_id, span.failed), is_retriever)
