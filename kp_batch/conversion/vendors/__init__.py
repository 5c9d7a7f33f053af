"""The makers of models and frameworks, each with its own form of a message's parts.

A maker is a module with a reader of its parts, which ignores all others. A format names the makers
whose parts it may contain, possibly all. What is around the parts is much the same everywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from kp_batch.conversion.conversation.messages import (
    ROLES,
    Json,
    Message,
    Piece,
    Reasoning,
    Role,
    ToolCall,
    ToolResult,
    as_object,
    as_text,
    id_text,
    joined,
    object_in,
    parts_of,
    plain,
    text_of,
    text_of_part,
)
from kp_batch.conversion.vendors import (
    ai_sdk,
    anthropic,
    converse,
    gemini,
    genai,
    langchain,
    openai,
)

Reader = Callable[[Json], list[Piece] | None]
Readers = tuple[Reader, ...]  # the first one that knows a part counts
AI_SDK: Readers = (ai_sdk.read,)
ANTHROPIC: Readers = (anthropic.read,)
GEMINI: Readers = (gemini.read,)
GENAI: Readers = (genai.read,)
ANY: Readers = (
    *(langchain.read, genai.read, anthropic.read, openai.read, gemini.read, ai_sdk.read),
    converse.read,
)
_EVENT = "gen_ai.event.content"
_BODY = ("content", "parts", "tool_calls", "function_call")
_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text")
_EXTRAS = ("tool_calls", "reasoning_content", "reasoning", "additional_kwargs")


def message_of(payload: Json, readers: Readers = ANY) -> Message | None:
    """Return the message of a JSON object; None if it is not one."""
    if "role" not in payload and openai.read in readers and (item := openai.item_of(payload)):
        return item
    speaker = str(payload.get("role") or payload.get("type") or "")
    role = ROLES.get(speaker) or ROLES.get(speaker.lower())
    if role is None or payload.keys().isdisjoint(_BODY):
        return None
    content = payload.get("parts")
    pieces = pieces_of(payload.get("content") if content is None else content, readers)
    if role == "tool":
        return _of_tool(payload, pieces)
    message = _made_of(role, pieces)
    return message if payload.keys().isdisjoint(_EXTRAS) else _with_extras(message, payload)


def unwrapped(payload: Json) -> Json:
    """Return the message in an object of LangChain, or in an event of Semantic Kernel."""
    if _EVENT in payload and (event := object_in(payload[_EVENT])):
        return {"role": payload.get("role"), **event}
    return langchain.unwrapped(payload)


def pieces_of(content: object, readers: Readers) -> list[Piece]:
    """Return the pieces of a message's content."""
    return [piece for part in parts_of(content) for piece in _read(part, readers)]


def _read(part: object, readers: Readers) -> Sequence[Piece]:
    if isinstance(part, dict):
        known = cast("Json", part)
        if known.get("type") not in _TEXTS or "thought" in known:
            for read in readers:
                if (pieces := read(known)) is not None:
                    return pieces
    return (text_of_part(part),)


def _made_of(role: Role, pieces: Sequence[Piece]) -> Message:
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) == len(pieces):
        return Message(role, joined(texts))  # the usual case
    thoughts = [piece.content for piece in pieces if isinstance(piece, Reasoning)]
    return Message(
        role,
        joined(texts),
        joined([text_of(thought) or as_text(thought) for thought in thoughts]),
        tuple(piece for piece in pieces if isinstance(piece, ToolCall)),
        tuple(piece for piece in pieces if isinstance(piece, ToolResult)),
    )


def _of_tool(payload: Json, pieces: Sequence[Piece]) -> Message:
    """Return a tool's message; if no part is a result, all of it is the result."""
    message = _made_of("tool", pieces)
    if message.results:
        return message
    if langchain.lists_tools(payload):
        return Message("system")
    failed = payload.get("status") == "error" or bool(payload.get("is_error"))
    content = plain(payload.get("content", message.text or None))
    result = ToolResult(content, id_text(payload.get("tool_call_id")), failed)
    return replace(message, text="", results=(result,))


def _with_extras(message: Message, payload: Json) -> Message:
    """Add what OpenAI and LangChain put next to a message's content."""
    extra = as_object(payload.get("additional_kwargs"))
    holder = payload if payload.get("tool_calls") else extra
    calls = (*openai.separate_calls(holder), *langchain.separate_calls(holder))
    known = {call.id for call in message.calls if call.id}
    reasoning = openai.separate_reasoning(payload) or openai.separate_reasoning(extra)
    return replace(
        message,
        reasoning=joined([message.reasoning, reasoning]),
        calls=(*message.calls, *(call for call in calls if call.id not in known)),
    )
