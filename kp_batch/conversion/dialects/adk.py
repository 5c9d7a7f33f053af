"""The spans of Google's Agent Development Kit 1: calls and runs in JSON of its own."""

from dataclasses import replace

from kp_batch.conversion.conversation.attributes import OtelSpan, json_at, value_at
from kp_batch.conversion.conversation.messages import (
    Message,
    ToolCall,
    ToolResult,
    id_text,
    object_in,
)
from kp_batch.conversion.conversation.payloads import messages_in
from kp_batch.conversion.conversation.spans import ModelCall, SpanContent, ToolRun
from kp_batch.conversion.dialects.dialect import Dialect
from kp_batch.conversion.vendors import GEMINI

_PREFIX = "gcp.vertex.agent."
_MERGED = "(merged tools)"
_UNKNOWN = ("N/A", "<not specified>", "<not serializable>")


def _content_of(span: OtelSpan) -> SpanContent | None:
    """Return the content of a span in this dialect; None if it has none."""
    arguments, result = _value(span, "tool_call_args"), _value(span, "tool_response")
    if arguments == result == "{}":  # content is not recorded
        return None
    if arguments is not None or result is not None:
        name = value_at(span.attributes, "gen_ai.tool.name")
        name = str(name or span.name.removeprefix("execute_tool "))
        call_id = id_text(value_at(span.attributes, "gen_ai.tool.call.id"))
        return ToolRun(
            ToolCall(name, arguments, call_id), ToolResult(_result(result), call_id, span.failed)
        )
    request, response = _value(span, "llm_request"), _value(span, "llm_response")
    # A tool's span has these, too; each is `{}` if content is not recorded.
    if (request is None and response is None) or value_at(span.attributes, "gen_ai.tool.name"):
        return None
    prompt, answer = object_in(request).get("contents"), object_in(response).get("content")
    return ModelCall(_messages(prompt), _messages(answer))


def _is_repeated(span: OtelSpan) -> bool:
    """Whether a span repeats the results of several tools, which have spans of their own."""
    return value_at(span.attributes, "gen_ai.tool.name") == _MERGED


def _value(span: OtelSpan, name: str) -> object:
    value = json_at(span.attributes, f"{_PREFIX}{name}")
    return None if value in _UNKNOWN else value


def _result(value: object) -> object:
    """Return a tool's result; the first versions recorded it in an event."""
    messages = messages_in(object_in(value).get("content"), GEMINI)
    results = [result.content for message in messages for result in message.results]
    return _bare(results[0] if results else value)


def _messages(contents: object) -> list[Message]:
    messages = messages_in(contents, GEMINI)
    return [
        replace(x, results=tuple(replace(y, content=_bare(y.content)) for y in x.results))
        for x in messages
    ]


def _bare(result: object) -> object:
    """Unwrap a result that is not an object: ADK wraps it in one."""
    inner = object_in(result)
    return inner["result"] if inner.keys() == {"result"} else result


DIALECT = Dialect(("gcp.vertex",), hook=_content_of, is_repeated=_is_repeated)
