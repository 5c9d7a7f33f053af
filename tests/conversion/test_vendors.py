"""Each maker's parts of messages are read by its own reader, and left by all others."""

from typing import Any

import pytest

from kp_batch.conversion.conversation.messages import Message, Reasoning, ToolCall, ToolResult
from kp_batch.conversion.conversation.payloads import messages_in, own_question_in
from kp_batch.conversion.vendors import (
    ANY,
    Reader,
    ai_sdk,
    anthropic,
    converse,
    gemini,
    genai,
    langchain,
    message_of,
    openai,
)

GIVEN = {"at": 1}
CALL = ToolCall("look", GIVEN, "c")
RESULT = ToolResult("found", "c")
PARTS: list[tuple[Reader, dict[str, Any], object]] = [
    (
        openai.read,
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        ToolCall("look", "{}", "c"),
    ),
    (openai.read, {"type": "function_call_output", "call_id": "c", "output": "found"}, RESULT),
    (
        openai.read,
        {"type": "local_shell_call", "call_id": "c", "action": GIVEN},
        ToolCall("local_shell", GIVEN, "c"),
    ),
    (anthropic.read, {"type": "thinking", "thinking": "hm"}, Reasoning("hm")),
    (anthropic.read, {"type": "tool_use", "id": "c", "name": "look", "input": GIVEN}, CALL),
    (anthropic.read, {"type": "tool_result", "tool_use_id": "c", "content": "found"}, RESULT),
    (
        anthropic.read,
        {"type": "web_search_tool_result", "tool_use_id": "c", "content": "found"},
        RESULT,
    ),
    (genai.read, {"type": "reasoning", "content": "hm"}, Reasoning("hm")),
    (genai.read, {"type": "tool_call", "id": "c", "name": "look", "arguments": GIVEN}, CALL),
    (genai.read, {"type": "tool_call_response", "id": "c", "response": "found"}, RESULT),
    (
        genai.read,
        {"type": "server_tool_call", "id": "c", "name": "look", "server_tool_call": GIVEN},
        CALL,
    ),
    (langchain.read, {"type": "reasoning", "reasoning": "hm"}, Reasoning("hm")),
    (langchain.read, {"type": "tool_call", "id": "c", "name": "look", "args": GIVEN}, CALL),
    (
        langchain.read,
        {"type": "server_tool_result", "tool_call_id": "c", "output": "found"},
        RESULT,
    ),
    (gemini.read, {"thought": True, "text": "hm"}, Reasoning("hm")),
    (gemini.read, {"functionCall": {"id": "c", "name": "look", "args": GIVEN}}, CALL),
    (gemini.read, {"type": "function_call", "id": "c", "name": "look", "args": GIVEN}, CALL),
    (gemini.read, {"type": "function_response", "id": "c", "response": "found"}, RESULT),
    (ai_sdk.read, {"type": "reasoning", "text": "hm"}, Reasoning("hm")),
    (
        ai_sdk.read,
        {"type": "tool-call", "toolCallId": "c", "toolName": "look", "input": GIVEN},
        CALL,
    ),
    (converse.read, {"toolUse": {"toolUseId": "c", "name": "look", "input": GIVEN}}, CALL),
    (converse.read, {"toolResult": {"toolUseId": "c", "content": [{"text": "found"}]}}, RESULT),
    (converse.read, {"reasoningContent": {"reasoningText": {"text": "hm"}}}, Reasoning("hm")),
    (
        ai_sdk.read,
        {"type": "tool-result", "toolCallId": "c", "output": {"type": "text", "value": "found"}},
        RESULT,
    ),
]


@pytest.mark.parametrize(("own", "part", "piece"), PARTS)
def test_a_part_is_read_by_its_maker_alone(
    own: Reader, part: dict[str, Any], piece: object
) -> None:
    assert {read.__module__: read(part) for read in ANY} == {
        read.__module__: [piece] if read is own else None for read in ANY
    }


@pytest.mark.parametrize(("own", "part", "piece"), PARTS)
def test_a_format_that_holds_only_one_makers_parts_leaves_all_others(
    own: Reader, part: dict[str, Any], piece: object
) -> None:
    message = {"role": "assistant", "content": [part]}
    for read in ANY:
        told = message_of(message, (read,))
        assert (told == Message("assistant")) == (read is not own)
    assert message_of(message) == message_of(message, (own,))
    assert piece


def test_a_result_that_looks_like_one_of_the_ai_sdk_is_left_as_it_is() -> None:
    response = {"type": "celsius", "value": 21}
    part = {"type": "tool_call_response", "id": "c", "response": response}
    assert messages_in([{"role": "tool", "parts": [part]}])[0].results == (
        ToolResult(response, "c"),
    )
    told = {"role": "tool", "tool_call_id": "c", "content": response}
    assert messages_in([told])[0].results == (ToolResult(response, "c"),)


def test_a_payload_whose_type_ends_like_a_call_is_a_question() -> None:
    payload = {"type": "support_call", "question": "where?"}
    assert (messages_in(payload), own_question_in(payload)) == ([], "where?")
