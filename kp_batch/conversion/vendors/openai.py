"""OpenAI's messages of a chat, and the items of its responses, which others have as parts."""

from collections.abc import Iterator

from kp_batch.conversion.conversation.messages import (
    Json,
    Message,
    Piece,
    ToolCall,
    ToolResult,
    as_object,
    first_id,
    first_of,
    id_text,
    list_in,
    plain,
    text_of,
)

_CALL, _OUTPUT = "_call", "_call_output"
_NO_CALLS = ("tool_call", "server_tool_call")  # others' parts, as those with `args`
_ARGUMENTS = ("arguments", "input", "action", "operation", "queries", "code")
_RESULTS = ("output", "outputs", "results", "error")
_IDS = ("call_id", "id")
_FAILED = ("failed", "error")


def read(part: Json) -> list[Piece] | None:
    """Return the call of an item, its result, or both if a provider ran the tool."""
    kind = part.get("type")
    if not isinstance(kind, str) or kind in _NO_CALLS or "args" in part:
        return None
    failed = bool(part.get("error")) or part.get("status") in _FAILED
    id_ = first_id(part, *_IDS)
    if kind.endswith(_OUTPUT):
        return [ToolResult(plain(part.get("output")), id_, failed)]
    if not kind.endswith(_CALL):
        return None
    # Some tools that the model's provider runs are named by the type alone.
    name, server = part.get("name") or kind.removesuffix(_CALL), part.get("server_label")
    call = ToolCall(str(name), first_of(part, *_ARGUMENTS), id_, str(server) if server else None)
    results = (part[name] for name in _RESULTS if part.get(name) is not None)
    return [call, *[ToolResult(plain(result), id_, failed) for result in [*results][:1]]]


def item_of(payload: Json) -> Message | None:
    """Return the message of an item of a response, if it is one by itself."""
    if payload.get("type") == "reasoning":
        return Message("assistant", reasoning=text_of(payload.get("summary")))
    pieces = (read(payload) or []) if first_id(payload, *_IDS) else []
    calls = tuple(piece for piece in pieces if isinstance(piece, ToolCall))
    results = tuple(piece for piece in pieces if isinstance(piece, ToolResult))
    return Message("assistant" if calls else "tool", "", "", calls, results) if pieces else None


def separate_calls(message: Json) -> Iterator[ToolCall]:
    """Yield the calls of a message of a chat."""
    for call in map(as_object, list_in(message.get("tool_calls"))):
        if function := as_object(call.get("function")):
            name, arguments = function.get("name"), function.get("arguments")
            yield ToolCall(str(name or ""), arguments, id_text(call.get("id")))


def separate_reasoning(message: Json) -> str:
    """Return the reasoning that providers with OpenAI's interface add to a message of a chat."""
    texts = (message.get(name) for name in ("reasoning_content", "reasoning"))
    return next((text for text in texts if isinstance(text, str)), "")
