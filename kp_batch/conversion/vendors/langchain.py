"""LangChain's messages, serialised or not, with its own parts and those of its providers."""

from collections.abc import Iterator
from typing import cast

from kp_batch.conversion.conversation.messages import (
    Json,
    Piece,
    Reasoning,
    ToolCall,
    ToolResult,
    as_object,
    id_text,
    list_in,
    plain,
)

_WRAPPERS = ("lc", "data")


def read(part: Json) -> list[Piece] | None:
    """Return the piece of a part of its own; None if it is not one of these."""
    kind = part.get("type")
    thought = part.get("reasoning") or part.get("summary")
    if kind == "reasoning" and thought:
        return [Reasoning(thought)]
    if kind in ("tool_call", "server_tool_call") and "args" in part:
        return [ToolCall(str(part.get("name") or ""), part["args"], id_text(part.get("id")))]
    if kind == "server_tool_result":
        failed = part.get("status") == "error"
        return [ToolResult(plain(part.get("output")), id_text(part.get("tool_call_id")), failed)]
    return None


def unwrapped(payload: Json) -> Json:
    """Unwrap a serialised message: it is in `kwargs`, in old exports in `data`."""
    if payload.keys().isdisjoint(_WRAPPERS):
        return payload
    if payload.get("lc") and isinstance(payload.get("kwargs"), dict):
        return {"type": _type_of(payload), **payload["kwargs"]}
    if "type" in payload and "content" in as_object(payload.get("data")):
        return {**payload["data"], "type": payload["type"]}
    return payload


def _type_of(payload: Json) -> str:
    path = payload.get("id")
    name = str(cast("list[object]", path)[-1]) if isinstance(path, list) and path else ""
    return name.removesuffix("Chunk").removesuffix("Message").lower()


def separate_calls(message: Json) -> Iterator[ToolCall]:
    """Yield the calls of a message; its content may repeat them."""
    for call in map(as_object, list_in(message.get("tool_calls"))):
        if "function" not in call:
            arguments = call.get("args", call.get("arguments"))
            yield ToolCall(str(call.get("name") or ""), arguments, id_text(call.get("id")))


def lists_tools(message: Json) -> bool:
    """Whether a tool's message lists the available tools and not a result, as LangGraph does."""
    return isinstance(as_object(message.get("content")).get("function"), dict)
