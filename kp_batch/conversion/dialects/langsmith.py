"""LangSmith's runs: spans of its exporter, and rows of its exports."""

import ast
from typing import cast

from kp_batch.conversion.conversation.attributes import OtelSpan, value_at
from kp_batch.conversion.conversation.messages import Json, Message, Role, parse_json
from kp_batch.conversion.conversation.payloads import (
    asked_in,
    messages_in,
    objective_in,
    without_role,
)
from kp_batch.conversion.dialects.dialect import Dialect, Kind, json_of, value_of

KIND, INPUTS, OUTPUTS = "langsmith.span.kind", "gen_ai.prompt", "gen_ai.completion"
_KINDS: dict[object, Kind] = {"llm": "model", "tool": "tool", "retriever": "retriever"}
KINDS = ("llm", "tool", "retriever", "chain", "embedding", "prompt", "parser")
_INPUTS, _OUTPUTS = json_of(INPUTS), json_of(OUTPUTS)
MAX_LITERAL_CHARS = 1 << 18  # a parsed character takes up to 500 bytes


def _kind(span: OtelSpan) -> Kind | None:
    """Return the kind of a span with content; a chain is an agent if it is the root."""
    if INPUTS not in span.attributes and _INPUTS(span) is None and _OUTPUTS(span) is None:
        return None  # rows always have the name, even without content
    kind = value_at(span.attributes, KIND)
    return "chain" if kind == "chain" and not span.parent else _KINDS.get(str(kind))


def _answer(outputs: object, *roles: Role) -> list[Message]:
    """Return the messages of a model's output, or its text if the model has no messages."""
    if answer := [message for message in messages_in(outputs) if message.role in roles]:
        return answer
    value = parse_json(outputs)
    return [without_role(value) or Message("assistant", _text_of(value))]


def _text_of(value: object) -> str:
    while isinstance(value, list) and value:
        value = cast("list[object]", value)[0]
    if isinstance(value, dict) and "generations" in value:
        return _text_of(value["generations"])
    return objective_in(value) if isinstance(value, (str, dict)) else ""


def _call(span: OtelSpan) -> tuple[object, str]:
    """Return the arguments of a call, and its id."""
    arguments = parse_json(_INPUTS(span))
    if isinstance(arguments, dict):
        inputs = cast("Json", arguments)
        if inputs.get("type") == "tool_call" and "args" in inputs:
            return inputs["args"], str(inputs.get("id") or "")
        if set(inputs) == {"input"} and isinstance(inputs["input"], str):
            return _arguments(inputs["input"]) or arguments, ""
    return arguments, ""


def _arguments(text: str) -> Json | None:
    """Parse arguments as LangChain writes them: JSON, or Python's notation if that is short."""
    value = parse_json(text)
    if isinstance(value, str) and value.startswith("{") and len(value) <= MAX_LITERAL_CHARS:
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _result(span: OtelSpan) -> object:
    content = parse_json(_OUTPUTS(span))
    if content == {}:
        return None  # LangSmith's value for no output
    is_wrapped = isinstance(content, dict) and set(content) == {"output"}
    return cast("Json", content)["output"] if is_wrapped else content


DIALECT = Dialect(
    families=("langsmith.",),
    kinds={KIND: KINDS},
    kind=_kind,
    prompt=lambda span: messages_in(_INPUTS(span)),
    answer=lambda span: _answer(_OUTPUTS(span), "assistant", "tool"),  # which a provider runs
    asked=lambda span: asked_in(_INPUTS(span)),
    answered=lambda span: _answer(_OUTPUTS(span), "assistant"),
    tool=value_of("langsmith.trace.name"),
    call_id=lambda span: _call(span)[1],
    arguments=lambda span: _call(span)[0],
    result=_result,
    is_repeated=lambda span: value_at(span.attributes, KIND) == "prompt",  # fills in a template
)
