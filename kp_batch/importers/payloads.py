"""Messages within JSON, in the shapes that models' providers and frameworks give them.

OpenAI's chat and responses, Anthropic's, Gemini's and LangChain's messages, and the parts of
OpenTelemetry's conventions: a message is known by its keys, whatever stands around it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from kp_batch.importers.messages import (
    Message,
    Role,
    ToolCall,
    ToolResult,
    as_text,
    joined,
    parsed,
)

Json = Mapping[str, Any]

_ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "model", "AIMessageChunk"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function"), "tool"),
}
# Where messages, or the question, stand in a payload.
_MESSAGES = (
    *("messages", "contents", "new_message", "message", "output", "choices", "generations"),
    *("candidates", "content", "input", "inputs", "query", "question", "prompt", "task", "kwargs"),
)
_NOTHING = (None, "", [], {})
_TEXTS = (
    *("messages", "contents", "input", "inputs", "query", "question", "prompt", "task"),
    *("text", "content", "parts", "output", "answer", "description", "kwargs"),
)


def messages_in(payload: object) -> list[Message]:
    """All messages that a payload holds, in their order; none if it holds none."""
    found: list[Message] = []
    for message in _messages(parsed(payload)):
        last = found[-1] if found else None
        if last and message.text and last == Message("assistant", reasoning=last.reasoning):
            found[-1] = replace(message, reasoning=joined([last.reasoning, message.reasoning]))
        else:
            found.append(message)
    return found


def said_in(payload: object) -> list[Message]:
    """What a model gave back: its messages; else one of the assistant's, without a role or text."""
    found = parsed(payload)
    if messages := list(_messages(found)):
        return messages
    parts = cast("list[object]", found) if isinstance(found, list) else []
    if parts and all(isinstance(each, Mapping) for each in parts):
        found = {"content": found}
    message = message_of({**found, "role": "assistant"}) if isinstance(found, Mapping) else None
    is_one = message and (message.thought or message.calls)
    return [message if message and is_one else Message("assistant", as_text(payload))]


def objective_in(payload: object) -> str:
    """The first user message of a payload, or the text at one of the usual places; else ''."""
    found = parsed(payload)
    said = [each.text for each in _messages(found) if each.role == "user" and each.text]
    return said[0] if said else _text_at_usual_place(found)


def text_of(content: object) -> str:
    """The text of a message's content: a text, or parts of which some are texts."""
    return joined([_text(part) for part in _parts(content)])


def question_in(payload: object) -> str:
    """As `objective_in`; of a payload without any usual place, all of it as text."""
    found = parsed(payload)
    return objective_in(found) or (as_text(found) if found not in _NOTHING else "")


def at_path(payload: object, path: str) -> str:
    """The text at a path of keys and numbers, such as `input.messages.0.content`; '' if none."""
    found = parsed(payload)
    for key in path.split("."):
        found = parsed(found)
        if isinstance(found, Mapping):
            found = cast("Json", found).get(key)
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = cast("list[object]", found)[int(key)]
        else:
            return ""
    return "" if found is None else as_text(found)


def _text_at_usual_place(found: object) -> str:
    if isinstance(found, str):
        return found
    if isinstance(found, list):
        texts = map(_text_at_usual_place, cast("list[object]", found))
        return text_of(found) or next(filter(None, texts), "")
    if isinstance(found, Mapping):
        payload = cast("Json", found)
        for name in _TEXTS:
            inner = parsed(payload.get(name))
            if text := inner if isinstance(inner, str) else _text_at_usual_place(inner):
                return text
    return ""


def _messages(found: object) -> Iterator[Message]:
    if isinstance(found, list):
        if pair := _pair(cast("list[object]", found)):
            yield pair
            return
        for each in cast("list[object]", found):
            yield from _messages(parsed(each))
    elif isinstance(found, Mapping):
        payload = _unwrapped(cast("Json", found))
        if message := message_of(payload):
            yield message
            return
        for name in _MESSAGES:
            inner = list(_messages(parsed(payload.get(name))))
            if inner:
                yield from inner
                return


def _pair(found: list[object]) -> Message | None:
    """A message as LangChain's callers write it: who speaks, and the text."""
    if len(found) != 2 or not all(isinstance(each, str) for each in found):
        return None
    role, text = map(str, found)
    return Message(_ROLES[role], text) if role in _ROLES else None


def _unwrapped(payload: Json) -> Json:
    """LangChain's serialised objects hold a message in `kwargs`, old exports in `data`."""
    event = parsed(payload.get("gen_ai.event.content"))  # Semantic Kernel's
    if isinstance(event, Mapping):
        return {"role": payload.get("role"), **event}
    if payload.get("lc") and isinstance(payload.get("kwargs"), Mapping):
        return {"type": _lc_type(payload), **payload["kwargs"]}
    if (
        "type" in payload
        and isinstance(payload.get("data"), Mapping)
        and "content" in payload["data"]
    ):
        return {**payload["data"], "type": payload["type"]}
    return payload


def _lc_type(payload: Json) -> str:
    path = payload.get("id")
    name = str(cast("list[object]", path)[-1]) if isinstance(path, list) and path else ""
    return name.removesuffix("Chunk").removesuffix("Message").lower()


def message_of(payload: Json) -> Message | None:
    """The message that a JSON object is; None if it is none."""
    item = _response_item(payload)
    if item:
        return item
    said_by = str(payload.get("role") or payload.get("type") or "")
    role = _ROLES.get(said_by) or _ROLES.get(said_by.lower())
    if role is None or not ({"content", "parts", "tool_calls", "function_call"} & payload.keys()):
        return None
    parts = _parts(
        payload.get("parts") if payload.get("parts") is not None else payload.get("content")
    )
    calls = [*_calls_of(parts), *_tool_calls(payload)]
    results = _results_of(parts)
    text = joined([_text(part) for part in parts])
    if role == "tool" and not results:
        content = payload.get("content", text or None)
        if isinstance(content, Mapping) and isinstance(content.get("function"), Mapping):
            return Message("system")  # LangGraph tells of the tools that there are
        results = [
            ToolResult(_plain(content), _id(payload.get("tool_call_id")), _is_failed(payload))
        ]
        text = ""
    reasoning = joined([_reasoning(part) for part in parts] + [_beside(payload)])
    return Message(role, text, reasoning, _distinct(calls), tuple(results))


def _response_item(payload: Json) -> Message | None:
    """An item of OpenAI's responses that is no message."""
    kind = payload.get("type")
    if kind == "function_call":
        call = ToolCall(
            str(payload.get("name") or ""),
            payload.get("arguments"),
            _id(payload.get("call_id") or payload.get("id")),
        )
        return Message("assistant", calls=(call,))
    if kind == "function_call_output":
        return Message(
            "tool", results=(ToolResult(payload.get("output"), _id(payload.get("call_id"))),)
        )
    if kind == "reasoning" and "role" not in payload:
        return Message(
            "assistant", reasoning=joined([_text(each) for each in _parts(payload.get("summary"))])
        )
    return None


def _parts(content: object) -> list[object]:
    if content is None:
        return []
    return cast("list[object]", content) if isinstance(content, list) else [content]


def _kind(part: object) -> str:
    """A part's type, with the AI SDK's `tool-call` as `tool_call`."""
    kind = cast("Json", part).get("type") if isinstance(part, Mapping) else None
    return str(kind or "").replace("-", "_")


def _text(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("thought"):
        return ""
    payload = cast("Json", part)
    if _kind(part) in ("", "text", "input_text", "output_text", "refusal", "summary_text"):
        for name in ("text", "content", "refusal"):
            if isinstance(payload.get(name), str):
                return payload[name]
    return ""


def _reasoning(part: object) -> str:
    if not isinstance(part, Mapping):
        return ""
    payload = cast("Json", part)
    if payload.get("thought") is True:
        return str(payload.get("text") or "")
    if _kind(part) not in ("thinking", "reasoning"):
        return ""
    names = ("thinking", "reasoning", "content", "text", "summary")
    found = next((payload[name] for name in names if payload.get(name)), "")
    return text_of(found) or as_text(found)


def _beside(payload: Json) -> str:
    """Reasoning that stands beside a message's content."""
    inner = payload.get("additional_kwargs")
    for each in (payload, inner if isinstance(inner, Mapping) else {}):
        for name in ("reasoning_content", "reasoning"):
            if isinstance(each.get(name), str):
                return each[name]
    return ""


def _calls_of(parts: Sequence[object]) -> Iterator[ToolCall]:
    for part in parts:
        if not isinstance(part, Mapping):
            continue
        payload = cast("Json", part)
        if _kind(part) in ("tool_call", "tool_use", "server_tool_use") or _is_bare_call(payload):
            given = next(
                (payload[name] for name in ("arguments", "input", "args") if name in payload), None
            )
            name, called = payload.get("name"), payload.get("id")
            yield ToolCall(
                str(name or payload.get("toolName") or ""),
                given,
                _id(called or payload.get("toolCallId")),
            )
        elif isinstance(
            call := payload.get("function_call") or payload.get("functionCall"), Mapping
        ):
            yield ToolCall(str(call.get("name") or ""), call.get("args"), _id(call.get("id")))


def _is_bare_call(part: Json) -> bool:
    """The AI SDK gives calls without a type, too."""
    return not _kind(part) and "toolName" in part and "result" not in part


def _tool_calls(payload: Json) -> Iterator[ToolCall]:
    inner = payload.get("additional_kwargs")
    beside = cast("Json", inner).get("tool_calls") if isinstance(inner, Mapping) else None
    found = parsed(payload.get("tool_calls") or beside)
    listed = cast("list[object]", found) if isinstance(found, list) else []
    for each in (cast("Json", each) for each in listed if isinstance(each, Mapping)):
        function = each.get("function")
        if isinstance(function, Mapping):
            yield ToolCall(
                str(function.get("name") or ""), function.get("arguments"), _id(each.get("id"))
            )
        else:
            given = next(
                (each[name] for name in ("args", "arguments", "input") if name in each), None
            )
            yield ToolCall(str(each.get("name") or ""), given, _id(each.get("id")))


def _results_of(parts: Sequence[object]) -> list[ToolResult]:
    found: list[ToolResult] = []
    for part in parts:
        if not isinstance(part, Mapping):
            continue
        payload = cast("Json", part)
        if _kind(part) in ("tool_result", "tool_call_response", "function_response"):
            given = next(
                (
                    payload[name]
                    for name in ("response", "result", "content", "output")
                    if name in payload
                ),
                None,
            )
            names = ("tool_use_id", "id", "call_id", "toolCallId")
            called = next((payload[name] for name in names if payload.get(name)), None)
            failed = payload.get("is_error") or _kind(given).startswith("error_")
            found.append(ToolResult(_plain(given), _id(called), bool(failed)))
        elif isinstance(
            given := payload.get("function_response") or payload.get("functionResponse"), Mapping
        ):
            found.append(ToolResult(given.get("response"), _id(given.get("id"))))
    return found


def _plain(given: object) -> object:
    """Anthropic's tool results are lists of text parts, the AI SDK's have a type and a value."""
    if isinstance(given, Mapping) and {*cast("Json", given)} == {"type", "value"}:
        return cast("Json", given)["value"]
    if isinstance(given, list) and given and all(_kind(each) == "text" for each in given):
        return joined([_text(each) for each in cast("list[object]", given)])
    return given


def _id(value: object) -> str:
    return "" if value is None else as_text(value)


def _is_failed(payload: Json) -> bool:
    return payload.get("status") == "error" or bool(payload.get("is_error"))


def _distinct(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls of one message: LangChain tells them in its content and beside it."""
    found: list[ToolCall] = []
    for call in calls:
        if not (call.id and any(call.id == each.id for each in found)):
            found.append(call)
    return tuple(found)
