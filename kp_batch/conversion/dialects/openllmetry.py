"""OpenLLMetry's spans: `traceloop.*`, and an attribute per message (`gen_ai.prompt.0.content`).

New versions have OpenTelemetry's attributes of messages and tools. LangChain's callbacks write
their own JSON into these, and into those of `traceloop`; its form shows it.
"""

from collections.abc import Sequence
from typing import cast

from kp_batch.conversion.conversation.attributes import (
    OtelSpan,
    json_at,
    list_at,
    value_at,
)
from kp_batch.conversion.conversation.messages import (
    ROLES,
    CutContentError,
    Json,
    Message,
    ToolCall,
    ToolResult,
    as_object,
    bare_arguments,
    object_in,
    parse_json,
    text_of,
)
from kp_batch.conversion.conversation.payloads import asked_in, messages_of, with_reasoning
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun
from kp_batch.conversion.dialects.dialect import Dialect
from kp_batch.conversion.vendors import message_of

_PROMPTS = ("gen_ai.prompt", "llm.prompts")  # the latter in the first versions
_COMPLETIONS = ("gen_ai.completion", "llm.completions")
_OWN = "traceloop."
_KIND = "traceloop.span.kind"
_CALLS = ("chat", "completion")
_REASONING = ("reasoning", "thinking")
_RETRIEVER = "vector_db_retrieve"
# What LangChain passes to a callback, where this is a part, and the key next to its results.
_CALLBACK = {"tags", "metadata", "kwargs"}
_GIVEN = ("inputs", "input_str", "query")
_BACK = {"output": "kwargs", "outputs": "kwargs", "documents": "count"}
_MCP = {"tool_name", "arguments"}


def _run_of(span: OtelSpan) -> ToolRun | None:
    """Return the run of a tool in this dialect; None if the span is not one."""
    is_retriever = value_at(span.attributes, "gen_ai.operation.name") == _RETRIEVER
    if not is_retriever and value_at(span.attributes, _KIND) != "tool":
        return None
    id_ = str(value_at(span.attributes, "gen_ai.tool.call.id") or "")
    given, back = (json_at(span.attributes, f"traceloop.entity.{x}") for x in ("input", "output"))
    result = _of_mcp(back) if object_in(given).keys() == _MCP else _output(back)
    call = ToolCall(_name_of(span), None if given is None else _arguments(given), id_)
    return ToolRun(call, ToolResult(result, id_, span.failed), is_retriever)


def _content_of(span: OtelSpan) -> SpanContent | None:
    """Return the content of any other span in this dialect; None if it has none."""
    prompt, answer = (_numbered(span, names) for names in (_PROMPTS, _COMPLETIONS))
    if prompt or answer or value_at(span.attributes, "llm.request.type") in _CALLS:
        return ModelCall(_messages(prompt, "user"), _messages(answer, "assistant"))
    if value_at(span.attributes, _KIND) != "agent":
        return None
    back = _output(json_at(span.attributes, "traceloop.entity.output"))
    answer = [] if back in (None, "") else messages_of(back)
    return AgentRun(asked_in(_input(span)), answer, _name_of(span))


def _input(span: OtelSpan) -> object:
    """Return the input of a span; None if it has none."""
    value = json_at(span.attributes, "traceloop.entity.input")
    try:
        return None if value is None else _arguments(value)
    except CutContentError:
        return value  # an error only if it is needed


def _name_of(span: OtelSpan) -> str:
    return str(value_at(span.attributes, "traceloop.entity.name") or span.name)


def _arguments(value: object) -> object:
    """Return the arguments of a function, without what its caller wraps around them."""
    given = object_in(value)
    if given.keys() == _MCP:
        return given["arguments"]
    if given.keys() >= _CALLBACK:
        return next((given[name] for name in _GIVEN if given.get(name)), value)
    return bare_arguments(value)


def _output(value: object) -> object:
    """Return the result of a function: JSON; LangChain's callbacks wrap it in another object."""
    result = parse_json(value)
    for name, other in _BACK.items():
        if as_object(result).keys() == {name, other}:
            return as_object(result)[name]
    return result if isinstance(result, str) else value


def _of_mcp(value: object) -> object:
    """Return what an MCP server returned: its first content, or from FastMCP all of them."""
    result = parse_json(value)
    return as_object(result).get("result", text_of(result) or value)


def _numbered(span: OtelSpan, names: Sequence[str]) -> list[Json]:
    """Return messages with an attribute for each part; in Phoenix's rows, a list."""
    for name in names:
        if not isinstance(value_at(span.attributes, name), str):
            items = [item for item in list_at(span.attributes, name) if isinstance(item, dict)]
            if items:
                return cast("list[Json]", items)
    return []


def _messages(items: Sequence[Json], usual: str) -> list[Message]:
    """Return the messages of these attributes; one without a role has the usual one."""
    return with_reasoning(message for item in items for message in _messages_of(item, usual))


def _messages_of(item: Json, usual: str) -> list[Message]:
    role, content = str(item.get("role") or usual), item.get("content")
    if role in _REASONING:  # Anthropic has a separate message for it
        return [Message("assistant", reasoning=str(content or ""))]
    parts = parse_json(content)
    has_parts = isinstance(parts, list) and all("type" in as_object(x) for x in parts) and parts
    calls = list_at(item, "tool_calls")
    if name := item.get("function_call.name"):
        calls.append({"name": name, "arguments": item.get("function_call.arguments")})
    message = message_of(
        {
            "role": role if role.lower() in ROLES else usual,
            "content": parts if has_parts else content,
            "tool_calls": calls,
            "tool_call_id": item.get("tool_call_id"),
            "reasoning_content": item.get("reasoning"),
        }
    )
    return [message] if message else []


RUNS = Dialect((_OWN,), {_KIND: ("workflow", "task", "agent", "tool", "unknown")}, hook=_run_of)
DIALECT = Dialect(
    ("gen_ai.prompt", "gen_ai.completion", "llm.", _OWN), hook=_content_of, input=_input
)
