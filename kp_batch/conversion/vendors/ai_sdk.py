"""The parts of Vercel's AI SDK."""

from typing import cast

from kp_batch.conversion.conversation.messages import (
    Json,
    Piece,
    Reasoning,
    ToolCall,
    ToolResult,
    as_object,
    first_of,
    id_text,
    joined,
    list_in,
    text_of_part,
)

_CALL, _RESULT = "tool-call", "tool-result"


def read(part: Json) -> list[Piece] | None:
    """Return the piece of a part; None if it is not one of these. Calls may have no type."""
    kind = part.get("type")
    if kind == "reasoning" and isinstance(part.get("text"), str):
        return [Reasoning(part["text"])]
    if kind == _CALL or (not kind and "toolName" in part and "result" not in part):
        return [call_of(part)]
    return [_result(part)] if kind == _RESULT else None


def call_of(part: Json) -> ToolCall:
    """Return the call of a part, or of what a span has next to its text."""
    name, arguments = part.get("toolName"), first_of(part, "input", "args")  # the latter up to 4
    return ToolCall(str(name or ""), arguments, id_text(part.get("toolCallId")))


def _result(part: Json) -> ToolResult:
    id_, output = id_text(part.get("toolCallId")), part.get("output")
    if not isinstance(output, dict):  # up to 4
        return ToolResult(part.get("result"), id_, bool(part.get("isError")))
    kind, value = output.get("type"), first_of(cast("Json", output), "value", "reason")
    parts = [as_object(part) for part in list_in(value)] if kind == "content" else []
    if parts and all(part.get("type") == "text" for part in parts):
        value = joined([text_of_part(part) for part in parts])
    return ToolResult(value, id_, str(kind).startswith(("error", "execution-denied")))
