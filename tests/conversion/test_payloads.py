"""Messages and questions within JSON, wherever providers and frameworks put them."""

from typing import Any

import pytest

from kp_batch.conversion.conversation.messages import (
    Message,
    ToolCall,
    ToolResult,
    bare_arguments,
)
from kp_batch.conversion.conversation.payloads import (
    at_path,
    messages_in,
    objective_in,
    question_in,
)

CALL = ToolCall("look", {"at": 1}, "c1")


@pytest.mark.parametrize(
    "payload",
    [
        "why?",
        {"contents": "why?"},
        {"contents": [{"parts": [{"text": "why?"}]}]},
        {"contents": [{"role": "user", "parts": [{"text": "why?"}]}]},
        {"messages": ["why?"]},
        {
            "messages": [
                {"role": "system", "content": "be kind"},
                {"type": "human", "content": "why?"},
            ]
        },
        {"messages": [["user", "why?"]]},
        {"input": [{"type": "text", "text": "why?"}]},
        {"inputs": {"question": "why?"}},
        {"query": {"messages": [{"role": "user", "content": "why?"}]}},
        {"task": {"description": "why?"}},
        {"kwargs": {"prompt": "why?"}},
        {"lc": 1, "id": ["x", "HumanMessage"], "kwargs": {"content": "why?"}},
        '{"question": "why?"}',
        {"args": ["why?"], "kwargs": {}},
        {"args": ["why?", "user-1"], "kwargs": {"limit": 3}},
        {"args": [{"limit": 3}], "kwargs": {"question": "why?"}},
        {"args": [[{"role": "user", "content": "why?"}], "user-1"], "kwargs": {}},
        {"kwargs": {"messages": [{"role": "user", "content": "why?"}]}},
        '{"args": [], "kwargs": {"prompt": "why?"}}',
    ],
)
def test_the_question_stands_in_the_usual_places(payload: object) -> None:
    assert objective_in(payload) == "why?"


def test_a_payload_of_another_kind_is_the_question_as_a_whole() -> None:
    assert objective_in({"city": "Bärn"}) == ""
    assert question_in({"city": "Bärn", "days": 2}) == '{"city":"Bärn","days":2}'
    assert [question_in(payload) for payload in (None, "", {}, [])] == [""] * 4
    assert question_in({"args": [], "kwargs": {"city": "Bärn"}}) == '{"city":"Bärn"}'
    assert question_in({"args": [3], "kwargs": {}}) == "3"
    assert question_in({"args": [], "kwargs": {}}) == ""


@pytest.mark.parametrize(
    ("arguments", "bare"),
    [
        ({"args": [], "kwargs": {"at": 1}}, {"at": 1}),
        ('{"args": [], "kwargs": {"at": 1}}', {"at": 1}),
        ({"kwargs": {"at": 1}}, {"at": 1}),
        ({"args": ["a"], "kwargs": {}}, "a"),
        ({"args": ["a", 1], "kwargs": {}}, ["a", 1]),
        ({"args": [], "kwargs": {}}, {}),
        *[
            (value, value)
            for value in (
                {"args": ["a"], "kwargs": {"at": 1}},
                {"args": ["-l"]},  # of a tool that has such a parameter
                {"args": "-l", "kwargs": {"at": 1}},
                {"kwargs": {"at": 1}, "command": "ls"},
                '{"at": 1}',
                None,
            )
        ],
    ],
)
def test_what_decorators_put_around_arguments_is_no_part_of_them(
    arguments: object, bare: object
) -> None:
    assert bare_arguments(arguments) == bare


def test_a_rule_may_name_the_place() -> None:
    payload = {"a": '{"b": [{"c": 1}, {"c": "ü"}]}'}
    assert at_path(payload, "a.b.1.c") == "ü"
    assert at_path(payload, "a.b.0") == '{"c":1}'
    assert [at_path(payload, path) for path in ("a.b.2.c", "x", "a.b.c")] == [""] * 3


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (  # OpenAI's chat
            {
                "role": "assistant",
                "content": "so",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c1", "function": {"name": "look", "arguments": '{"at": 1}'}}
                ],
            },
            Message("assistant", "so", "hm", (ToolCall("look", '{"at": 1}', "c1"),)),
        ),
        (  # Anthropic's
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}},
                ],
            },
            Message("assistant", "so", "hm", (CALL,)),
        ),
        (
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "is_error": True,
                        "content": [
                            {"type": "text", "text": "no"},
                            {"type": "text", "text": "way"},
                        ],
                    }
                ],
            },
            Message("user", results=(ToolResult("no\nway", "c1", failed=True),)),
        ),
        (  # Gemini's
            {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"at": 1}}}]},
            Message("assistant", calls=(ToolCall("look", {"at": 1}),)),
        ),
        (  # LangChain's
            {
                "type": "ai",
                "content": [
                    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                    {"type": "text", "text": "so"},
                ],
                "tool_calls": [{"name": "look", "args": {"at": 1}, "id": "c1"}],
            },
            Message("assistant", "so", "hm", (CALL,)),
        ),
        (
            {"type": "tool", "content": [{"type": "text", "text": "R"}], "tool_call_id": "c1"},
            Message("tool", results=(ToolResult("R", "c1"),)),
        ),
        (  # OpenTelemetry's parts
            {
                "role": "tool",
                "parts": [{"type": "tool_call_response", "id": "c1", "response": {"a": None}}],
            },
            Message("tool", results=(ToolResult({"a": None}, "c1"),)),
        ),
        (
            {"role": "tool", "parts": [{"type": "text", "content": "R"}]},
            Message("tool", results=(ToolResult("R"),)),
        ),
    ],
)
def test_a_message_is_known_in_every_shape(payload: dict[str, Any], message: Message) -> None:
    assert messages_in([payload]) == [message]


def test_the_items_of_a_response_are_one_message_with_its_reasoning() -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "so"}],
        },
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "R"},
    ]
    assert messages_in({"output": output}) == [
        Message("assistant", "so", "hm"),
        Message("assistant", calls=(ToolCall("look", "{}", "c1"),)),
        Message("tool", results=(ToolResult("R", "c1"),)),
    ]
