"""Anthropic's blocks."""

from kp_batch.conversion.conversation.messages import (
    Json,
    Piece,
    Reasoning,
    ToolCall,
    ToolResult,
    as_object,
    id_text,
    plain,
)

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_RESULT = "tool_result"


def read(part: Json) -> list[Piece] | None:
    """Return the piece of a block; None if it is not one of these."""
    kind = str(part.get("type") or "")
    if kind == "thinking" and "thinking" in part:
        return [Reasoning(part["thinking"])]
    if kind in _CALLS:
        name, server = part.get("name"), part.get("server_name")
        id_ = id_text(part.get("id"))
        return [ToolCall(str(name or ""), part.get("input"), id_, str(server) if server else None)]
    if kind == _RESULT or (kind.endswith(f"_{_RESULT}") and "tool_use_id" in part):
        content = part.get("content")
        found = as_object(content)
        is_error = str(found.get("type") or "").endswith("_error")
        if found.keys() == {"type", "text"}:  # an advisor's
            content = found["text"]
        failed = is_error or bool(part.get("is_error"))
        return [ToolResult(plain(content), id_text(part.get("tool_use_id")), failed)]
    return None
