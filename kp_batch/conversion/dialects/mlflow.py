"""MLflow's spans, whose attributes are JSON: a type, inputs and outputs, `mlflow.spanType`."""

import re
from collections.abc import Mapping, Sequence

from kp_batch.bounds import TooLargeError, loads
from kp_batch.conversion.conversation.attributes import OtelSpan, agent_name, json_at, value_at
from kp_batch.conversion.conversation.messages import Json, Message, object_in, text_of
from kp_batch.conversion.conversation.payloads import asked_in, messages_in, messages_of
from kp_batch.conversion.dialects.dialect import Dialect, Kind, json_of, value_of

MODEL = "mlflow.llm.model"
_KIND = "mlflow.spanType"
_KINDS: Mapping[str, Kind] = {
    "LLM": "model",
    "CHAT_MODEL": "model",
    "AGENT": "agent",
    "TOOL": "tool",
    "RETRIEVER": "retriever",
}
_OTHERS = (
    *("CHAIN", "EMBEDDING", "RERANKER", "PARSER", "MEMORY", "WORKFLOW", "TASK"),
    *("GUARDRAIL", "EVALUATOR", "UNKNOWN"),
)
_TOOL = "tool_name"  # Claude Code's; its spans have other names
_METHOD = re.compile(r"\w+\.\w+")  # by which a framework runs an agent
_INPUT = json_of("mlflow.spanInputs")


def plain(attributes: Json) -> Json:
    """Return a span's attributes as MLflow's own exporter writes them, each as JSON text."""
    is_json = str(attributes.get(_KIND, "")).startswith('"')
    return parsed(attributes) if is_json else attributes


def parsed(attributes: Mapping[str, object]) -> Json:
    """Parse attributes that are JSON; others stay, and so does JSON that breaks off."""
    return {name: _value_of(value) for name, value in attributes.items()}


def _value_of(value: object) -> object:
    try:
        return loads(value) if isinstance(value, str) else value
    except (ValueError, TooLargeError):
        return value


def _kind(span: OtelSpan) -> Kind | None:
    """Return the kind of a span; a root of another type may be an agent: a function, or a chain."""
    kind = str(value_at(span.attributes, _KIND) or "").upper()
    return _KINDS.get(kind, "chain" if kind and not span.parent else None)


def _answer(span: OtelSpan) -> Sequence[Message]:
    output = json_at(span.attributes, "mlflow.spanOutputs")
    if output is None:
        return ()
    if isinstance(output, list) and all(isinstance(each, str) for each in output):
        return [Message("assistant", text_of(output))]  # DSPy's form
    return [message for message in messages_of(output) if message.role in ("assistant", "tool")]


def _result(span: OtelSpan) -> object:
    result = value_at(span.attributes, "mlflow.spanOutputs")
    is_wrapped = value_at(span.attributes, _TOOL) is not None
    return object_in(result).get("result", result) if is_wrapped else result


DIALECT = Dialect(
    families=("mlflow.",),
    kinds={_KIND: [kind.lower() for kind in (*_KINDS, *_OTHERS)]},
    kind=_kind,
    prompt=lambda span: messages_in(_INPUT(span)),
    answer=_answer,
    asked=lambda span: asked_in(_INPUT(span)),
    answered=_answer,
    agent=lambda span: None if _METHOD.fullmatch(span.name) else agent_name(span.name),
    tool=value_of(_TOOL),
    call_id=value_of("tool_id", "tool_call_id"),  # the latter is LangChain's
    arguments=_INPUT,
    result=_result,
    input=_INPUT,
)
