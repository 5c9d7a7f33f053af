"""LangSmith's runs, as its own exports tell them, and as its exporter does in spans."""

import ast
from collections.abc import Sequence
from typing import cast

from kp_batch.conversion.conversation import spans
from kp_batch.conversion.conversation.attributes import OtelSpan, json_at, value_at
from kp_batch.conversion.conversation.messages import (
    Json,
    Message,
    Role,
    ToolCall,
    ToolResult,
    parse_json,
)
from kp_batch.conversion.conversation.payloads import (
    asked_in,
    messages_in,
    objective_in,
    without_role,
)

FAMILIES = ("langsmith.",)
_KIND = "langsmith.span.kind"
AGENT = "agent"  # no type of LangSmith's: a chain that is the root
_OF_MODELS: Sequence[Role] = ("assistant", "tool")  # the latter where the provider runs tools
_LITERAL = 1 << 18  # letters: parsed, each takes up to 500 bytes


def content_of(span: OtelSpan) -> spans.SpanContent | None:
    """The content of a span in this dialect; None if it has none."""
    kind = value_at(span.attributes, _KIND)
    if kind is None:
        return None
    inputs, outputs = (json_at(span.attributes, f"gen_ai.{x}") for x in ("prompt", "completion"))
    if inputs is None and outputs is None:
        return None
    name = value_at(span.attributes, "langsmith.trace.name") or span.name
    kind = AGENT if kind == "chain" and not span.parent else kind
    run = {"run_type": kind, "name": name, "inputs": inputs, "outputs": outputs}
    return content_of_run({**run, "error": span.failed})


def is_template(span: OtelSpan) -> bool:
    """Whether a span fills in a prompt, though its operation says that it calls a model."""
    return value_at(span.attributes, _KIND) == "prompt"


def content_of_run(run: Json) -> spans.SpanContent | None:
    """The content of a run, of its type, name, inputs, outputs and error; None if it has none."""
    if run["run_type"] == "llm":
        return spans.ModelCall(
            messages_in(run.get("inputs")), _answer(run.get("outputs"), *_OF_MODELS)
        )
    if run["run_type"] in ("tool", "retriever"):
        return spans.ToolRun(_call(run), _result(run), is_retriever=run["run_type"] == "retriever")
    if run["run_type"] == AGENT:
        answer = _answer(run.get("outputs"), "assistant")
        return spans.AgentRun(asked_in(run.get("inputs")), answer, is_chain=True)
    return None


def _answer(outputs: object, *roles: Role) -> list[Message]:
    """The messages of a model's output; else its text, as models without messages have."""
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


def _call(run: Json) -> ToolCall:
    arguments, call_id = parse_json(run.get("inputs")), ""
    if isinstance(arguments, dict):
        inputs = cast("Json", arguments)
        if inputs.get("type") == "tool_call" and "args" in inputs:
            arguments, call_id = inputs["args"], str(inputs.get("id") or "")
        elif set(inputs) == {"input"} and isinstance(inputs["input"], str):
            arguments = _arguments(inputs["input"]) or arguments
    return ToolCall(run.get("name") or "", arguments, call_id)


def _arguments(text: str) -> Json | None:
    """Arguments as LangChain writes them: in Python's notation, if that is short, or as JSON."""
    value = parse_json(text)
    if isinstance(value, str) and value.startswith("{") and len(value) <= _LITERAL:
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _result(run: Json) -> ToolResult:
    failed = run.get("status") == "error" or run["error"]
    content = parse_json(run.get("outputs"))
    if content == {}:
        content = None  # what LangSmith has where nothing came out
    if isinstance(content, dict) and set(content) == {"output"}:
        content = content["output"]
    return ToolResult(content, failed=failed)
