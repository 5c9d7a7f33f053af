"""Gemini's parts: with Python's or JSON's spelling, and flat, as others write them."""

from collections.abc import Mapping

from kp_batch.conversion.conversation.messages import (
    Json,
    Piece,
    Reasoning,
    ToolCall,
    ToolResult,
    id_text,
)

_CALL = ("function_call", "functionCall")
_RESPONSE = ("function_response", "functionResponse")


def read(part: Json) -> list[Piece] | None:
    """Return the piece of a part; None if it is not one of these."""
    if part.get("thought"):
        return [Reasoning(part.get("text") or "")]
    call, response = (_inner(part, *names) for names in (_CALL, _RESPONSE))
    if call or (part.get("type") == _CALL[0] and "args" in part):
        call = call or part
        return [ToolCall(str(call.get("name") or ""), call.get("args"), id_text(call.get("id")))]
    if response or part.get("type") == _RESPONSE[0]:
        response = response or part
        return [ToolResult(response.get("response"), id_text(response.get("id")))]
    if code := _inner(part, "executable_code", "executableCode"):
        return [ToolCall("code_execution", code.get("code"))]
    if ran := _inner(part, "code_execution_result", "codeExecutionResult"):
        failed = str(ran.get("outcome") or "OUTCOME_OK") != "OUTCOME_OK"
        return [ToolResult(ran.get("output"), failed=failed)]
    return None


def _inner(part: Json, *names: str) -> Json:
    return next((part[name] for name in names if isinstance(part.get(name), Mapping)), {})
