"""The blocks of Bedrock's Converse, which Strands and botocore use, too."""

from collections.abc import Sequence
from typing import cast

from kp_batch.conversion.conversation.messages import (
    Json,
    Piece,
    Reasoning,
    ToolCall,
    ToolResult,
    as_object,
    id_text,
    joined,
    list_in,
)

_LEFT_OUT = ("image", "document", "video", "audio", "guardContent", "cachePoint", "searchResult")
_CALL, _RESULT, _REASONING, _CITED = "toolUse", "toolResult", "reasoningContent", "citationsContent"
_KNOWN = {"text", _CALL, _RESULT, _REASONING, _CITED, "json", *_LEFT_OUT}


def read(part: Json) -> list[Piece] | None:
    """Return the piece of a block; None if it is not one of these."""
    if use := as_object(part.get(_CALL)):
        name = str(use.get("name") or "")
        return [ToolCall(name, use.get("input"), id_text(use.get("toolUseId")))]
    if result := as_object(part.get(_RESULT)):
        failed = result.get("status") == "error"
        content = plain(result.get("content"))
        return [ToolResult(content, id_text(result.get("toolUseId")), failed)]
    if reasoning := as_object(part.get(_REASONING)):
        return [Reasoning(str(as_object(reasoning.get("reasoningText")).get("text") or ""))]
    return [_text_of(part)] if _CITED in part else None


def blocks_in(content: object) -> Sequence[Json]:
    """Return the blocks of a content, which may be JSON; none if it is something else.

    Each has one key, its kind. One known kind is enough: new versions add others.
    """
    items = list_in(content)
    kinds = [key for item in items if isinstance(item, dict) and len(item) == 1 for key in item]
    if len(kinds) == len(items) and not _KNOWN.isdisjoint(kinds):
        return cast("Sequence[Json]", items)
    return ()


def plain(content: object) -> object:
    """Return a tool's result as text or value if it is in blocks; else unchanged."""
    blocks = blocks_in(content)
    if len(blocks) == 1 and "json" in blocks[0]:
        return blocks[0]["json"]
    if blocks and all("text" in block for block in blocks):
        return joined([_text_of(block) for block in blocks])
    return content


def _text_of(block: Json) -> str:
    text = block.get("text")
    cited = list_in(as_object(block.get(_CITED)).get("content"))
    return text if isinstance(text, str) else joined([_text_of(as_object(x)) for x in cited])
