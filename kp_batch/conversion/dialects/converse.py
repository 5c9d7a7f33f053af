"""The blocks of Bedrock's Converse, in which Strands and botocore tell a message's content."""

from collections.abc import Sequence
from typing import Any, cast

from kp_batch.conversion.conversation.messages import (
    Json,
    Message,
    Role,
    ToolCall,
    ToolResult,
    as_object,
    id_text,
    joined,
    list_in,
)

_LEFT_OUT = ("image", "document", "video", "audio", "guardContent", "cachePoint", "searchResult")
_COUNTED = ("text", "toolUse", "toolResult", "reasoningContent", "citationsContent", "json")
_KNOWN = {*_COUNTED, *_LEFT_OUT}


def blocks_in(content: object) -> Sequence[Json]:
    """The blocks that a content is, may it be JSON; none if it is something else.

    Each has one key, its kind. One that is known is enough: others come with each version.
    """
    items = list_in(content)
    kinds = [key for item in items if isinstance(item, dict) and len(item) == 1 for key in item]
    if len(kinds) == len(items) and not _KNOWN.isdisjoint(kinds):
        return cast("Sequence[Json]", items)
    return ()


def message_of(role: Role, content: object) -> Message | None:
    """The message of a content in blocks; None if it is in none."""
    blocks = blocks_in(content)
    if not blocks:
        return None
    return Message(
        role,
        text=joined([_text_of(block) for block in blocks]),
        reasoning=joined([_reasoning_of(block) for block in blocks]),
        calls=tuple(_call(block["toolUse"]) for block in blocks if "toolUse" in block),
        results=tuple(_result(block["toolResult"]) for block in blocks if "toolResult" in block),
    )


def plain(content: object) -> object:
    """A tool's result as text or as its value, if it is in blocks; else as it is."""
    blocks = blocks_in(content)
    if len(blocks) == 1 and "json" in blocks[0]:
        return blocks[0]["json"]
    if blocks and all("text" in block for block in blocks):
        return joined([_text_of(block) for block in blocks])
    return content


def _text_of(block: Json) -> str:
    text = block.get("text")
    cited = list_in(as_object(block.get("citationsContent")).get("content"))
    return text if isinstance(text, str) else joined([_text_of(as_object(x)) for x in cited])


def _reasoning_of(block: Json) -> str:
    reasoning = as_object(block.get("reasoningContent"))
    return str(as_object(reasoning.get("reasoningText")).get("text") or "")


def _call(use: Any) -> ToolCall:
    use = as_object(use)
    return ToolCall(str(use.get("name") or ""), use.get("input"), id_text(use.get("toolUseId")))


def _result(result: Any) -> ToolResult:
    result = as_object(result)
    failed = result.get("status") == "error"
    return ToolResult(plain(result.get("content")), id_text(result.get("toolUseId")), failed)
