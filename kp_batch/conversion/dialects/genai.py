"""OpenTelemetry's conventions of spans: `gen_ai.*`, with older events and vendors' own keys."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from kp_batch.conversion.conversation.attributes import (
    Event,
    OtelSpan,
    Score,
    first_value,
    json_at,
    list_at,
    scores_of,
    value_at,
)
from kp_batch.conversion.conversation.messages import (
    ROLES,
    Json,
    JsonText,
    Message,
    Role,
    ToolCall,
    ToolResult,
    as_object,
    list_in,
    object_in,
    parse_json,
)
from kp_batch.conversion.conversation.payloads import messages_in, messages_of, without_role
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun
from kp_batch.conversion.dialects.dialect import Dialect
from kp_batch.conversion.dialects.unread import MEMORY, NO_AGENTS, OPERATION
from kp_batch.conversion.vendors import message_of
from kp_batch.conversion.vendors.converse import blocks_in, plain

_MODEL = ("chat", "text_completion", "generate_content", "call_llm")
_AGENT = ("invoke_agent", "create_agent", "invoke_workflow", "plan")
_TOOL, _RETRIEVER = "execute_tool", "retrieval"
_OPERATIONS = (*_MODEL, *_AGENT, _TOOL, _RETRIEVER)
_PROMPT = "gen_ai.input.messages"
_ANSWER = "gen_ai.output.messages"
# Up to 1.27, as attributes of spans or events.
_OLD_PROMPT, _OLD_ANSWER = "gen_ai.prompt", "gen_ai.completion"
_ROLE = re.compile(r"^(system|developer|user|assistant|tool): ", re.MULTILINE)
_OLD_CHOICE = "gen_ai.content.completion"
_PROVIDER = ("gen_ai.system", "gen_ai.provider.name")
_STRANDS = "strands-agents"
_ARGUMENTS = ("gen_ai.tool.call.arguments", "gen_ai.tool.args", "gen_ai.retrieval.query.text")
_RESULT = (
    *("gen_ai.tool.call.result", "gen_ai.tool.call.response", "gen_ai.output"),
    "gen_ai.retrieval.documents",
)
_CHOICE, _TOOL_MESSAGE = "gen_ai.choice", "gen_ai.tool.message"
_ELIDED = "<elided>"  # replaces content that ADK has left out
_BLOCKS = '[{"'
_SPEAKERS: Mapping[str, Role] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    _TOOL_MESSAGE: "tool",
    _CHOICE: "assistant",
}


def _content_of(span: OtelSpan) -> SpanContent | None:
    """Return the content of a span in this dialect; None if it has none."""
    operation = value_at(span.attributes, OPERATION)
    is_known = operation in _OPERATIONS
    if not is_known:
        operation = _guess(span)
    if operation in _MODEL:
        return ModelCall(_prompt(span), _answer(span), may_wrap=not is_known)
    if operation in _AGENT:
        return AgentRun(_prompt(span), _answer(span))
    if operation in (_TOOL, _RETRIEVER):
        return _run(span, operation)
    return None


def _run(span: OtelSpan, operation: str) -> ToolRun:
    name = value_at(span.attributes, "gen_ai.tool.name")
    name = str(name or span.name.removeprefix(f"{operation} "))
    call_id = str(value_at(span.attributes, "gen_ai.tool.call.id") or "")
    arguments, result = json_at(span.attributes, *_ARGUMENTS), first_value(span.attributes, _RESULT)
    if arguments is None and result is None:
        arguments, result = _run_of_events(span)
    failed = span.failed or value_at(span.attributes, "gen_ai.tool.status") == "error"  # Strands'
    return ToolRun(
        ToolCall(name, arguments, call_id),
        ToolResult(result, call_id, failed),
        is_retriever=operation == _RETRIEVER,
    )


def _run_of_events(span: OtelSpan) -> tuple[object, object]:
    """Return the arguments and the result of a tool in Strands' events; None if one is missing."""
    prompt, answer = (_messages(span, name) for name in (_PROMPT, _ANSWER))
    calls = (call.arguments for message in prompt for call in message.calls)
    results = (result.content for message in answer for result in message.results)
    contents = {event.name: _fields(event).get("content") for event in span.events}
    if _CHOICE not in contents:
        return next(calls, None), next(results, None)
    return contents.get(_TOOL_MESSAGE), plain(contents[_CHOICE])


def _input(span: OtelSpan) -> object:
    """Return the input of a span; None if it has none."""
    value = _attribute(span, _PROMPT)
    if value is not None:
        return value
    old = _attribute(span, _OLD_PROMPT)
    if old is not None:
        messages = _after_roles(old) if isinstance(old, str) else []
        return [{"role": each.role, "content": each.text} for each in messages] or old
    messages = (_usual(event) for event in span.events if event.name in _SPEAKERS)
    return [message for message in messages if len(message) > 1] or None


def _scores(span: OtelSpan) -> list[Score]:
    """Return the scores of a span."""
    if not span.events:
        return []
    name, value = "gen_ai.evaluation.name", "gen_ai.evaluation.score.value"
    return scores_of(
        (value_at(event.attributes, name), value_at(event.attributes, value), event.time)
        for event in span.events
        if event.name == "gen_ai.evaluation.result"
    )


def _guess(span: OtelSpan) -> str | None:
    """Return the likely operation of a span that names none of these."""
    if value_at(span.attributes, "gen_ai.tool.name"):
        return _TOOL
    speaks = any(event.name in (*_SPEAKERS, _OLD_CHOICE) for event in span.events)
    return _MODEL[0] if speaks or _attribute(span, _ANSWER) is not None else None


def _attribute(span: OtelSpan, name: str) -> object:
    """Return an attribute of a span or of its events: JSON, or a text in older ones."""
    value = value_at(span.attributes, name)
    for event in span.events if value is None else ():
        value = value_at(event.attributes, name) if value is None else value
    return JsonText.of(name, value, or_text=True)


def _prompt(span: OtelSpan) -> Sequence[Message]:
    messages = _messages(span, _PROMPT)
    messages = messages or spoken(event for event in span.events if event.name != _CHOICE)
    return messages or _of_old(_attribute(span, _OLD_PROMPT), "user")


def _answer(span: OtelSpan) -> Sequence[Message]:
    messages = _messages(span, _ANSWER) or _of_own_roles(_attribute(span, _ANSWER))
    messages = messages or spoken(event for event in span.events if event.name == _CHOICE)
    messages = messages or _of_old(_attribute(span, _OLD_ANSWER), "assistant")
    return messages or _vendors_answer(value_at(span.attributes, "gen_ai.output"))


def _of_own_roles(answer: object) -> list[Message]:
    """Return the messages of an answer with unusual roles, which the conventions allow."""
    return [message for item in list_in(answer) if (message := without_role(item))]


def _of_old(value: object, role: Role) -> list[Message]:
    """Return the messages in one value, as the conventions had them before events."""
    if isinstance(value, str) and isinstance(parse_json(value), str):
        return _after_roles(value) or [Message(role, str(value))]
    return messages_of(value) if value and role == "assistant" else messages_in(value)


def _after_roles(text: str) -> list[Message]:
    """Return the messages of a text that names the role before each, as OpenLIT writes them."""
    before, *parts = _ROLE.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [] if before else [Message(ROLES[role], words.strip()) for role, words in pairs]


def _messages(span: OtelSpan, name: str) -> list[Message]:
    messages = messages_in(_attribute(span, name))
    has_results = any(message.results for message in messages)
    if not has_results or first_value(span.attributes, _PROVIDER) != _STRANDS:
        return messages
    return [replace(x, results=tuple(map(_plain, x.results))) for x in messages]


def _plain(result: ToolResult) -> ToolResult:
    return replace(result, content=plain(result.content))


def spoken(events: Iterable[Event]) -> list[Message]:
    """Return the messages of these events."""
    messages = (
        message for event in events if event.name in _SPEAKERS for message in _messages_of(event)
    )
    return [message for message in messages if message]


def _messages_of(event: Event) -> Iterator[Message | None]:
    yield message_of(_usual(event))
    if results := blocks_in(_fields(event).get("tool.result")):
        yield message_of({"role": "tool", "content": results})


def _fields(event: Event) -> Json:
    """Return an event's attributes, and those of the JSON in one of them."""
    body = object_in(json_at(event.attributes, "gen_ai.event.content"))
    fields = {name: _blocks(name, value) for name, value in {**event.attributes, **body}.items()}
    inner = parse_json(fields.get("message"))
    if isinstance(inner, dict):
        return {**fields, **cast("Json", inner)}
    return fields if inner is None else {**fields, "content": inner}


def _blocks(name: str, value: object) -> object:
    """Parse a field of an event if it begins as Strands' JSON blocks do."""
    return JsonText.of(name, value) if str(value).startswith(_BLOCKS) else value


def _usual(event: Event) -> Json:
    """Return the message of an event in the usual shape."""
    fields = _fields(event)
    content: object = fields.get("content", _ELIDED)
    message: dict[str, object] = {"role": _SPEAKERS[event.name]}
    if "parts" in as_object(content):  # Gemini's form, with its own role
        role = as_object(content).get("role") or message["role"]
        message = {"role": role, "parts": as_object(content)["parts"]}
    elif content != _ELIDED:
        message["content"] = blocks_in(content) or content
    if calls := list_at(fields, "tool_calls"):
        message["tool_calls"] = calls
    if (call_id := fields.get("id")) is not None:
        message["tool_call_id"] = call_id
    return message


def _vendors_answer(value: object) -> list[Message]:
    """Return the answer that any-agent records: a text, or JSON of tool calls."""
    if not isinstance(value, str):
        return []
    items = list_in(value)
    if items and all(value_at(item, "tool.name") for item in items):
        pairs = ((value_at(item, "tool.name"), value_at(item, "tool.args")) for item in items)
        return [Message("assistant", calls=tuple(ToolCall(str(x), y) for x, y in pairs))]
    return [Message("assistant", value)]


DIALECT = Dialect(
    ("gen_ai.",),
    {OPERATION: (*_OPERATIONS, *NO_AGENTS, *MEMORY)},
    hook=_content_of,
    input=_input,
    scores=_scores,
)
