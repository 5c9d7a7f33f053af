"""Where messages, and the question, stand in what a system recorded: in JSON of many shapes."""

from dataclasses import replace
from typing import cast

from kp_batch.imports.conversation.messages import (
    ROLES,
    Json,
    Message,
    ToolResult,
    as_text,
    joined,
    list_in,
    message_of,
    parse_json,
    text_of,
    unwrapped,
)

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
    for message in _messages(parse_json(payload)):
        last = found[-1] if found else None
        if last and message.text and last == Message("assistant", reasoning=last.reasoning):
            found[-1] = replace(message, reasoning=joined([last.reasoning, message.reasoning]))
        else:
            found.append(message)
    return found


def messages_of(payload: object) -> list[Message]:
    """What a model gave back: its messages; else one of the assistant's, without a role or text."""
    found = parse_json(payload)
    if messages := messages_in(found):
        return messages
    parts = list_in(found)
    if parts and all(isinstance(part, dict) for part in parts):
        found = {"content": found}
    return [without_role(found) or Message("assistant", as_text(payload))]


def result_in(payload: object) -> ToolResult | None:
    """The result in a tool's message, which LangChain's tools give back; None if it is none."""
    found = parse_json(payload)
    told = unwrapped(cast("Json", found)) if isinstance(found, dict) else {}
    message = message_of(told) if "tool_call_id" in told else None
    return next(iter(message.results), None) if message else None


def without_role(found: object) -> Message | None:
    """The assistant's message that an object is where its role is left out; None if it is none."""
    message = message_of({**found, "role": "assistant"}) if isinstance(found, dict) else None
    return message if message and (message.thought or message.calls) else None


def objective_in(payload: object) -> str:
    """The first user message of a payload, or the text at one of the usual places; else ''."""
    found = parse_json(payload)
    said = [message.text for message in _messages(found) if message.role == "user" and message.text]
    return said[0] if said else _text_at_usual_place(found)


def question_in(payload: object) -> str:
    """As `objective_in`; of a payload without any usual place, all of it as text."""
    found = parse_json(payload)
    return objective_in(found) or (as_text(found) if found not in _NOTHING else "")


def at_path(payload: object, path: str) -> str:
    """The text at a path of keys and numbers, such as `input.messages.0.content`; '' if none."""
    found = parse_json(payload)
    for key in path.split("."):
        found = parse_json(found)
        if isinstance(found, dict):
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
    if isinstance(found, dict):
        payload = cast("Json", found)
        for name in _TEXTS:
            inner = parse_json(payload.get(name))
            if text := inner if isinstance(inner, str) else _text_at_usual_place(inner):
                return text
    return ""


def _messages(found: object) -> list[Message]:
    if isinstance(found, list):
        if pair := _pair(cast("list[object]", found)):
            return [pair]
        items = map(parse_json, cast("list[object]", found))
        return [message for each in items for message in _messages(each)]
    if isinstance(found, dict):
        payload = unwrapped(cast("Json", found))
        if message := message_of(payload):
            return [message]
        inner = (_messages(parse_json(payload.get(name))) for name in _MESSAGES)
        return next(filter(None, inner), [])
    return []


def _pair(found: list[object]) -> Message | None:
    """A message as LangChain's callers write it: who speaks, and the text."""
    if len(found) != 2 or not all(isinstance(each, str) for each in found):
        return None
    role, text = map(str, found)
    return Message(ROLES[role], text) if role in ROLES else None
