"""The parts of OpenTelemetry's conventions."""

from kp_batch.conversion.conversation.messages import (
    Json,
    Piece,
    Reasoning,
    ToolCall,
    ToolResult,
    first_of,
    id_text,
    plain,
)

_SERVER_CALL, _SERVER_RESULT = "server_tool_call", "server_tool_call_response"


def read(part: Json) -> list[Piece] | None:
    """Return the piece of a part; None if it is not one of these."""
    kind, id_ = part.get("type"), id_text(part.get("id"))
    name = str(part.get("name") or "")
    if kind in ("reasoning", "thinking") and part.get("content"):  # the latter is Pydantic AI's
        return [Reasoning(part["content"])]
    if kind == "tool_call" and "args" not in part:  # which is LangChain's
        return [ToolCall(name, part.get("arguments"), id_)]
    if kind == "tool_call_response":
        return [ToolResult(plain(first_of(part, "response", "result")), id_)]
    if kind == _SERVER_CALL and _SERVER_CALL in part:
        return [ToolCall(name, part.get(_SERVER_CALL), id_)]
    if kind == _SERVER_RESULT:
        return [ToolResult(plain(part.get(_SERVER_RESULT)), id_)]
    return None
