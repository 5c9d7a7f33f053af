"""Inspect's chat messages."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import cast

from kp_batch import limits
from kp_batch.imports.conversation.messages import Json, Message, Role, ToolCall, ToolResult, joined
from kp_batch.limits import VALUE_BYTES, Room, TooLargeError

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_ATTACHED = ("attachment://", "tc://")  # the second in old logs
_KEPT = ("role", "reasoning", "tool_call_id", "error", "tool_error")
_OF_PARTS = (
    *("type", "text", "reasoning", "summary", "redacted"),
    *("tool_type", "context", "id", "name", "arguments", "result", "error"),
)
_OF_CALLS = ("id", "function", "arguments")


def trim_messages(
    messages: Iterable[Json], attachments: Mapping[str, str], prior: Collection[str] = ()
) -> list[Json]:
    """Messages with what counts, without pictures, and with what is attached in its place.

    Args:
        messages: as a log has them.
        attachments: of the sample, by name.
        prior: ids of messages that an earlier run of the sample told.

    Raises:
        TooLargeError: they come to more than a trace may hold.
    """
    room = _room()
    return [cast("Json", _whole(_slim(each, prior), attachments, room)) for each in messages]


def _slim(message: Json, prior: Collection[str]) -> Json:
    content, calls = message.get("content"), message.get("tool_calls") or ()
    return {
        **_only(message, _KEPT),
        "prior": str(message.get("id")) in prior,
        "content": [_only(each, _OF_PARTS) for each in _parts(message)]
        if isinstance(content, list)
        else content,
        "tool_calls": [_only(each, _OF_CALLS) for each in cast("Iterable[Json]", calls)],
    }


def _only(found: Json, names: Iterable[str]) -> Json:
    return {name: found[name] for name in names if found.get(name) is not None}


def resolve_attachments(value: object, attachments: Mapping[str, str]) -> object:
    """JSON with what is attached in its place.

    Raises:
        TooLargeError: it comes to more than a trace may hold.
    """
    return _whole(value, attachments, _room())


def _room() -> Room:
    # A few bytes can name a long text, or many messages, any number of times.
    most = f"{limits.LINE_BYTES >> 20} MiB"
    return Room(
        limits.LINE_BYTES, f"it is too large to be read: its messages take more than {most}"
    )


def _whole(value: object, attachments: Mapping[str, str], room: Room) -> object:
    if isinstance(value, str):
        text = _attached(value, attachments)
        room.take(VALUE_BYTES + len(text))
        return text
    if not isinstance(value, list | dict):
        return value
    room.take(VALUE_BYTES)
    try:
        if isinstance(value, list):
            return [_whole(each, attachments, room) for each in cast("list[object]", value)]
        return {key: _whole(each, attachments, room) for key, each in cast("Json", value).items()}
    except RecursionError as error:
        raise TooLargeError from error


def _attached(text: str, attachments: Mapping[str, str]) -> str:
    for protocol in _ATTACHED:
        if text.startswith(protocol):
            found: object = attachments.get(text.removeprefix(protocol))
            return found if isinstance(found, str) else text
    return text


def conversation(messages: Iterable[Json]) -> Iterator[Message]:
    """Messages, without those of an earlier run but for the question."""
    asked = False
    for each in messages:
        role = _ROLES.get(each.get("role") or "")
        is_question = role == "user" and not asked and not _is_shown(each) and _text(each) != ""
        asked = asked or is_question
        if role and (is_question or not each["prior"]):
            yield from _read(role, each)


def _read(role: Role, message: Json) -> Iterator[Message]:
    if role == "assistant":
        yield from _said(message)
    elif role == "tool":
        yield Message(role, results=(_result(message),))
    elif not _is_shown(message):
        yield Message(role, _text(message))


def _is_shown(message: Json) -> bool:
    """Whether a user's message only carries what a tool has shown."""
    return message.get("role") == "user" and bool(message.get("tool_call_id"))


def _said(message: Json) -> Iterator[Message]:
    reasoning = [_reasoning(each) for each in _parts(message)]
    beside = message.get("reasoning")
    reasoning.append(beside if isinstance(beside, str) else "")
    yield Message("assistant", _text(message), joined(reasoning))
    for part in _parts(message):
        if part.get("type") == "tool_use":
            yield _run_by_provider(part)
    calls = (
        ToolCall(str(each.get("function") or ""), each.get("arguments"), str(each.get("id") or ""))
        for each in message.get("tool_calls") or ()
    )
    yield Message("assistant", calls=tuple(calls))


def _run_by_provider(part: Json) -> Message:
    name, called = str(part.get("name") or ""), str(part.get("id") or "")
    server = part.get("context") if part.get("tool_type") == "mcp_call" else None
    call = ToolCall(name, part.get("arguments"), called, server)
    content = part.get("result") or part.get("error")
    return Message(
        "assistant",
        calls=(call,),
        results=(ToolResult(content or "", called, failed=bool(part.get("error"))),),
    )


def _result(message: Json) -> ToolResult:
    """A tool's result; where it failed without one, the model was shown the error."""
    error = message.get("error") or message.get("tool_error")
    shown = error.get("message") if isinstance(error, dict) else error
    return ToolResult(
        _text(message) or shown or (None if message.get("content") is None else ""),
        str(message.get("tool_call_id") or ""),
        failed=bool(error),
    )


def _parts(message: Json) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [each for each in content or () if isinstance(each, dict)]


def _text(message: Json) -> str:
    parts = _parts(message)
    return joined([str(each.get("text") or "") for each in parts if each.get("type") == "text"])


def _reasoning(part: Json) -> str:
    """What can be read of a reasoning: a redacted one is encrypted, but may have a summary."""
    if part.get("type") != "reasoning":
        return ""
    hidden = part.get("redacted") or not part.get("reasoning")
    return str(part.get("summary" if hidden else "reasoning") or "")
