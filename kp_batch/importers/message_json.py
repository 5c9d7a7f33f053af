"""The message that a JSON object is, in the shapes that providers and frameworks give it.

OpenAI's chat and responses, Anthropic's, Gemini's and LangChain's messages, and the parts of
OpenTelemetry's conventions: a message is known by its keys, whatever stands around it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from kp_batch.importers.message_parts import (
    calls_of,
    id_text,
    parts_of,
    plain,
    reasoning_of,
    results_of,
    text_of_part,
)
from kp_batch.importers.messages import (
    Json,
    Message,
    Role,
    ToolCall,
    ToolResult,
    joined,
    list_in,
    parsed,
)

ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "model", "AIMessageChunk"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function"), "tool"),
}


def message_of(payload: Json) -> Message | None:
    """The message that a JSON object is; None if it is none."""
    item = _response_item(payload)
    if item:
        return item
    said_by = str(payload.get("role") or payload.get("type") or "")
    role = ROLES.get(said_by) or ROLES.get(said_by.lower())
    if role is None or not ({"content", "parts", "tool_calls", "function_call"} & payload.keys()):
        return None
    parts = parts_of(
        payload.get("parts") if payload.get("parts") is not None else payload.get("content")
    )
    calls = [*calls_of(parts), *_tool_calls(payload)]
    results = results_of(parts)
    text = joined([text_of_part(part) for part in parts])
    if role == "tool" and not results:
        content = payload.get("content", text or None)
        if isinstance(content, Mapping) and isinstance(content.get("function"), Mapping):
            return Message("system")  # LangGraph tells of the tools that there are
        results = [
            ToolResult(plain(content), id_text(payload.get("tool_call_id")), _is_failed(payload))
        ]
        text = ""
    reasoning = joined([reasoning_of(part) for part in parts] + [_beside(payload)])
    return Message(role, text, reasoning, _distinct(calls), tuple(results))


def _response_item(payload: Json) -> Message | None:
    """An item of OpenAI's responses that is no message."""
    kind = payload.get("type")
    if kind == "function_call":
        call = ToolCall(
            str(payload.get("name") or ""),
            payload.get("arguments"),
            id_text(payload.get("call_id") or payload.get("id")),
        )
        return Message("assistant", calls=(call,))
    if kind == "function_call_output":
        return Message(
            "tool", results=(ToolResult(payload.get("output"), id_text(payload.get("call_id"))),)
        )
    if kind == "reasoning" and "role" not in payload:
        return Message(
            "assistant",
            reasoning=joined([text_of_part(each) for each in parts_of(payload.get("summary"))]),
        )
    return None


def unwrapped(payload: Json) -> Json:
    """LangChain's serialised objects hold a message in `kwargs`, old exports in `data`."""
    event = parsed(payload.get("gen_ai.event.content"))  # Semantic Kernel's
    if isinstance(event, Mapping):
        return {"role": payload.get("role"), **event}
    if payload.get("lc") and isinstance(payload.get("kwargs"), Mapping):
        return {"type": _lc_type(payload), **payload["kwargs"]}
    if (
        "type" in payload
        and isinstance(payload.get("data"), Mapping)
        and "content" in payload["data"]
    ):
        return {**payload["data"], "type": payload["type"]}
    return payload


def _lc_type(payload: Json) -> str:
    path = payload.get("id")
    name = str(cast("list[object]", path)[-1]) if isinstance(path, list) and path else ""
    return name.removesuffix("Chunk").removesuffix("Message").lower()


def _beside(payload: Json) -> str:
    """Reasoning that stands beside a message's content."""
    inner = payload.get("additional_kwargs")
    for each in (payload, inner if isinstance(inner, Mapping) else {}):
        for name in ("reasoning_content", "reasoning"):
            if isinstance(each.get(name), str):
                return each[name]
    return ""


def _tool_calls(payload: Json) -> Iterator[ToolCall]:
    inner = payload.get("additional_kwargs")
    beside = cast("Json", inner).get("tool_calls") if isinstance(inner, Mapping) else None
    listed = list_in(payload.get("tool_calls") or beside)
    for each in (cast("Json", each) for each in listed if isinstance(each, Mapping)):
        function = each.get("function")
        if isinstance(function, Mapping):
            yield ToolCall(
                str(function.get("name") or ""), function.get("arguments"), id_text(each.get("id"))
            )
        else:
            given = next(
                (each[name] for name in ("args", "arguments", "input") if name in each), None
            )
            yield ToolCall(str(each.get("name") or ""), given, id_text(each.get("id")))


def _is_failed(payload: Json) -> bool:
    return payload.get("status") == "error" or bool(payload.get("is_error"))


def _distinct(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls of one message: LangChain tells them in its content and beside it."""
    found: list[ToolCall] = []
    for call in calls:
        if not (call.id and any(call.id == each.id for each in found)):
            found.append(call)
    return tuple(found)
