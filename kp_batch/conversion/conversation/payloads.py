"""Finds the messages and the question in payloads: JSON of many shapes."""

from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from kp_batch.conversion.conversation.messages import (
    ROLES,
    Json,
    Message,
    ToolResult,
    as_object,
    as_text,
    bare_arguments,
    joined,
    list_in,
    object_in,
    parse_json,
    text_of,
    wrapped_arguments,
)
from kp_batch.conversion.vendors import ANY, Readers, message_of, unwrapped

# The keys that may contain messages, or the question, the best first.
_MESSAGES = (
    *("messages", "contents", "new_message", "message", "output", "choices", "generations"),
    *("candidates", "content", "input", "inputs", "query", "question", "prompt", "task", "kwargs"),
)
_NOTHING: tuple[object, ...] = (None, "", [], {})
_TEXTS = (
    *("messages", "contents", "input", "inputs", "query", "question", "prompt", "user_prompt"),
    *("task", "message", "text", "content", "parts", "output", "answer", "description", "kwargs"),
)
_NO_QUESTIONS = ("messages", "contents", "parts", "output", "answer")


def messages_in(payload: object, readers: Readers = ANY) -> list[Message]:
    """Return all messages in a payload, in order; separate reasoning joins the next message.

    Args:
        payload: JSON, as a value or as text.
        readers: readers of the makers whose parts it may contain.
    """
    return with_reasoning(_messages(parse_json(payload), readers))


def with_reasoning(found: Iterable[Message]) -> list[Message]:
    """Join separate reasoning with the next message."""
    messages: list[Message] = []
    for message in found:
        last = messages[-1] if messages else None
        if last and message.text and _is_reasoning_alone(last):
            messages[-1] = replace(message, reasoning=joined([last.reasoning, message.reasoning]))
        else:
            messages.append(message)
    return messages


def _is_reasoning_alone(message: Message) -> bool:
    is_more = message.text or message.calls or message.results
    return message.role == "assistant" and not is_more


def asked_in(payload: object) -> list[Message]:
    """Return what an agent is asked: the messages in its input, or else its text."""
    question = own_question_in(payload)
    return messages_in(payload) or ([Message("user", question)] if question else [])


def messages_of(payload: object) -> list[Message]:
    """Return the messages of a model's output; else all of it as one message."""
    output = parse_json(payload)
    if messages := messages_in(output):
        return messages
    parts = list_in(output)
    if parts and all(isinstance(part, dict) for part in parts):
        output = {"content": output}
    return [without_role(output) or Message("assistant", answer_of(payload))]


def answer_of(payload: object) -> str:
    """Return an output as text, without the object that LangChain's agents wrap it in."""
    output = object_in(payload)
    text = output.get("output") if len(output) == 1 else None
    return text if isinstance(text, str) else as_text(payload)


def result_in(payload: object) -> ToolResult | None:
    """Return the result in a tool message that LangChain's tools return; None if it is not one."""
    inner = unwrapped(object_in(payload))
    is_tools = "tool_call_id" in inner or "tool" in (inner.get("type"), inner.get("role"))
    message = message_of(inner) if is_tools else None
    return next(iter(message.results), None) if message else None


def without_role(value: object) -> Message | None:
    """Return the assistant's message of an object without a role; None if it is not one."""
    message = message_of({**as_object(value), "role": "assistant"})
    return message if message and (message.thought or message.calls) else None


def objective_in(payload: object) -> str:
    """Return the first user message of a payload, or the text at a usual place; else ''.

    A conversation without a question there has none: an answer is not a question.
    """
    value = parse_json(payload)
    messages = _messages(value, ANY)
    asked = (message.text for message in messages if message.role == "user")
    if question := next(filter(None, asked), None):
        return question
    is_begun = any(message.role in ("assistant", "tool") for message in messages)
    return "" if isinstance(value, list) and is_begun else _text_at_usual_place(value)


def own_question_in(payload: object) -> str:
    """Return the question of a payload that is not one of its messages; '' if there is none.

    It is the payload itself, if that is a text, or the text at a usual place.
    """
    value = parse_json(payload)
    if isinstance(value, str):
        return value if value.strip() else ""
    if wrapped := wrapped_arguments(value):
        return next(filter(None, map(own_question_in, (*wrapped[0], wrapped[1]))), "")
    content = as_object(value)
    if not content or message_of(unwrapped(content)):
        return ""
    texts = (own_question_in(content.get(name)) for name in _TEXTS if name not in _NO_QUESTIONS)
    return next(filter(None, texts), "")


def question_in(payload: object) -> str:
    """Return the question as `objective_in`; without messages, all of a payload as text."""
    value = bare_arguments(parse_json(payload))
    is_known = value in _NOTHING or _messages(value, ANY)
    return objective_in(value) or ("" if is_known else as_text(value))


def at_path(payload: object, path: str | None) -> str:
    """Return the text at a path of keys and numbers, as `input.messages.0.content`; else ''."""
    if not path:
        return ""
    value = parse_json(payload)
    for key in path.split("."):
        value = parse_json(value)
        if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = cast("list[object]", value)[int(key)]
        else:
            value = as_object(value).get(key)
    return "" if value is None else as_text(value)


def _text_at_usual_place(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = map(_text_at_usual_place, cast("list[object]", value))
        return text_of(value) or next(filter(None, texts), "")
    if wrapped := wrapped_arguments(value):
        texts = (_text_at_usual_place(parse_json(item)) for item in (*wrapped[0], wrapped[1]))
        return next(filter(None, texts), "")
    if isinstance(value, dict):
        payload = cast("Json", value)
        for name in _TEXTS:
            if text := _text_at_usual_place(parse_json(payload.get(name))):
                return text
    return ""


def _messages(value: object, readers: Readers) -> list[Message]:
    if isinstance(value, list):
        if pair := _pair(cast("list[object]", value)):
            return [pair]
        items = map(parse_json, cast("list[object]", value))
        return [message for item in items for message in _messages(item, readers)]
    if isinstance(value, dict):
        payload = unwrapped(cast("Json", value))
        if message := message_of(payload, readers):
            return [message]
        wrapped = wrapped_arguments(value)
        inner = (*wrapped[0], wrapped[1]) if wrapped else map(payload.get, _MESSAGES)
        return next(filter(None, (_messages(parse_json(item), readers) for item in inner)), [])
    return []


def _pair(items: list[object]) -> Message | None:
    """Return a message as LangChain's callers write it: its role, and the text."""
    if len(items) != 2 or not all(isinstance(item, str) for item in items):
        return None
    role, text = map(str, items)
    return Message(ROLES[role], text) if role in ROLES else None
