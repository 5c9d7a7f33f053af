"""OpenLLMetry's spans: a message an attribute (`gen_ai.prompt.0.content`), and `traceloop.*`."""

from collections.abc import Sequence
from typing import cast

from kp_batch.conversion.conversation.attributes import (
    FlatAttributes,
    OtelSpan,
    list_at,
    value_at,
)
from kp_batch.conversion.conversation.messages import (
    ROLES,
    Json,
    Message,
    ToolCall,
    ToolResult,
    as_object,
    message_of,
    object_in,
    parse_json,
)
from kp_batch.conversion.conversation.payloads import with_reasoning
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun

_PREFIXES = ("gen_ai", "llm", "traceloop")  # of names
_PROMPTS = ("gen_ai.prompt", "llm.prompts")  # the latter in the first versions
_COMPLETIONS = ("gen_ai.completion", "llm.completions")
_CALLS = ("chat", "completion")
_REASONING = ("reasoning", "thinking")
_CALLBACK = ("inputs", "input_str")  # what LangChain tells a callback of a tool's input


def content_of(span: OtelSpan) -> SpanContent | None:
    """The content of a span in this dialect; None if it has none."""
    if not _is_spoken(span):
        return None
    kind = value_at(span.attributes, "traceloop.span.kind")
    name = str(value_at(span.attributes, "traceloop.entity.name") or span.name)
    if kind == "tool":
        return _run(span, name)
    prompt, answer = (_numbered(span, names) for names in (_PROMPTS, _COMPLETIONS))
    if prompt or answer or value_at(span.attributes, "llm.request.type") in _CALLS:
        return ModelCall(_messages(prompt, "user"), _messages(answer, "assistant"))
    return AgentRun(name=name) if kind == "agent" else None


def payload(span: OtelSpan) -> object:
    """The input of a span; None if it has none."""
    value = value_at(span.attributes, "traceloop.entity.input")
    return None if value is None else _arguments(value)


def _is_spoken(span: OtelSpan) -> bool:
    names = span.attributes
    return not (isinstance(names, FlatAttributes) and names.prefixes.isdisjoint(_PREFIXES))


def _run(span: OtelSpan, name: str) -> ToolRun:
    result = value_at(span.attributes, "traceloop.entity.output")
    return ToolRun(ToolCall(name, payload(span)), ToolResult(_output(result), failed=span.failed))


def _arguments(value: object) -> object:
    """What a function was given: `@tool` tells it in `args` and `kwargs`, LangChain in `inputs`."""
    given = object_in(value)
    if given.keys() == {"args", "kwargs"}:
        args, kwargs = given["args"], given["kwargs"]
        if not args:
            return kwargs
        return value if kwargs or len(args) > 1 else args[0]
    if "input_str" in given:
        return next((given[name] for name in _CALLBACK if given.get(name)), value)
    return value


def _output(value: object) -> object:
    """What a function gave back: in JSON; from LangChain's callback within `output`."""
    result = parse_json(value)
    if as_object(result).keys() == {"output", "kwargs"}:
        return as_object(result)["output"]
    return result if isinstance(result, str) else value


def _numbered(span: OtelSpan, names: Sequence[str]) -> list[Json]:
    """The messages of which a span has an attribute for each part; in Phoenix's rows, a list."""
    for name in names:
        if not isinstance(value_at(span.attributes, name), str):
            items = [item for item in list_at(span.attributes, name) if isinstance(item, dict)]
            if items:
                return cast("list[Json]", items)
    return []


def _messages(items: Sequence[Json], usual: str) -> list[Message]:
    """The messages of these attributes, where one without a role has the usual one."""
    return with_reasoning(message for item in items for message in _told(item, usual))


def _told(item: Json, usual: str) -> list[Message]:
    role, content = str(item.get("role") or usual), item.get("content")
    if role in _REASONING:  # Anthropic's has a message of its own
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
