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
def test_the_question_is_found_in_the_usual_places(payload: object) -> None:
    assert objective_in(payload) == "why?"


def test_a_payload_of_another_kind_is_the_question_as_a_whole() -> None:
    assert objective_in({"city": "Bärn"}) == ""


def test_what_a_conversation_has_answered_is_not_its_question() -> None:
    lost = [{"role": "tool", "content": "found"}, {"role": "assistant", "content": "there"}]
    assert objective_in(lost) == question_in(lost) == ""
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


ACTION = {"type": "search", "query": "east lock"}
FOUND = [{"title": "Lock news"}]
HOSTED: list[tuple[Any, list[ToolCall], list[ToolResult]]] = [
    # OpenAI's responses.
    (
        {"type": "web_search_call", "id": "w1", "status": "completed", "action": ACTION},
        [ToolCall("web_search", ACTION, "w1")],
        [],
    ),
    (
        {"type": "file_search_call", "id": "f1", "queries": ["lock"], "results": FOUND},
        [ToolCall("file_search", ["lock"], "f1")],
        [ToolResult(FOUND, "f1")],
    ),
    (
        {"type": "file_search_call", "id": "f1", "queries": ["lock"], "results": None},
        [ToolCall("file_search", ["lock"], "f1")],
        [],
    ),
    (
        {
            "type": "mcp_call",
            "id": "m1",
            "server_label": "harbour",
            "name": "lock_log",
            "arguments": "{}",
            "output": "opened at 8",
            "error": None,
        },
        [ToolCall("lock_log", "{}", "m1", "harbour")],
        [ToolResult("opened at 8", "m1")],
    ),
    (
        {"type": "mcp_call", "id": "m1", "name": "lock_log", "arguments": "{}", "error": "no way"},
        [ToolCall("lock_log", "{}", "m1")],
        [ToolResult("no way", "m1", failed=True)],
    ),
    (
        {"type": "custom_tool_call", "call_id": "c1", "id": "t1", "name": "note", "input": "lock"},
        [ToolCall("note", "lock", "c1")],
        [],
    ),
    (
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "R"},
        [],
        [ToolResult("R", "c1")],
    ),
    (
        {"type": "code_interpreter_call", "id": "i1", "code": "1 + 1", "outputs": [{"logs": "2"}]},
        [ToolCall("code_interpreter", "1 + 1", "i1")],
        [ToolResult([{"logs": "2"}], "i1")],
    ),
    (
        {"type": "local_shell_call", "call_id": "c1", "action": {"command": ["ls"]}},
        [ToolCall("local_shell", {"command": ["ls"]}, "c1")],
        [],
    ),
]
PARTS: list[tuple[Any, list[ToolCall], list[ToolResult]]] = [
    *[each for each in HOSTED if each[1]],  # as LangChain has them
    # Anthropic's.
    (
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "lock"}},
        [ToolCall("web_search", {"query": "lock"}, "s1")],
        [],
    ),
    (
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": FOUND},
        [],
        [ToolResult(FOUND, "s1")],
    ),
    (
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s1",
            "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
        },
        [],
        [
            ToolResult(
                {"type": "web_search_tool_result_error", "error_code": "unavailable"},
                "s1",
                failed=True,
            )
        ],
    ),
    (
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s1",
            "content": [{**FOUND[0], "encrypted_content": "SECRET"}, *FOUND[1:]],
        },
        [],
        [ToolResult(FOUND, "s1")],
    ),
    (
        {
            "type": "code_execution_tool_result",
            "tool_use_id": "s1",
            "content": {"encrypted_stdout": "SECRET", "return_code": 0},
        },
        [],
        [ToolResult({"return_code": 0}, "s1")],
    ),
    (
        {"type": "mcp_tool_use", "id": "s1", "name": "log", "server_name": "harbour", "input": {}},
        [ToolCall("log", {}, "s1", "harbour")],
        [],
    ),
    (
        {
            "type": "mcp_tool_result",
            "tool_use_id": "s1",
            "is_error": True,
            "content": [{"type": "text", "text": "no"}],
        },
        [],
        [ToolResult("no", "s1", failed=True)],
    ),
    # OpenTelemetry's.
    (
        {"type": "server_tool_call", "id": "s1", "name": "web_search", "server_tool_call": ACTION},
        [ToolCall("web_search", ACTION, "s1")],
        [],
    ),
    (
        {
            "type": "server_tool_call_response",
            "id": "s1",
            "server_tool_call_response": {"results": FOUND},
        },
        [],
        [ToolResult({"results": FOUND}, "s1")],
    ),
    # LangChain's own.
    (
        {"type": "server_tool_call", "id": "s1", "name": "web_search", "args": {"query": "lock"}},
        [ToolCall("web_search", {"query": "lock"}, "s1")],
        [],
    ),
    (
        {"type": "server_tool_result", "tool_call_id": "s1", "status": "error", "output": FOUND},
        [],
        [ToolResult(FOUND, "s1", failed=True)],
    ),
    # Gemini's.
    (
        {"executableCode": {"language": "PYTHON", "code": "1 + 1"}},
        [ToolCall("code_execution", "1 + 1")],
        [],
    ),
    (
        {"code_execution_result": {"outcome": "OUTCOME_OK", "output": "2"}},
        [],
        [ToolResult("2")],
    ),
]


@pytest.mark.parametrize(("item", "calls", "results"), HOSTED)
def test_an_item_of_a_tool_that_a_provider_runs_is_a_call_and_its_result(
    item: dict[str, Any], calls: list[ToolCall], results: list[ToolResult]
) -> None:
    role = "assistant" if calls else "tool"
    assert messages_in([item]) == [Message(role, calls=tuple(calls), results=tuple(results))]


@pytest.mark.parametrize(("part", "calls", "results"), PARTS)
def test_a_part_of_a_tool_that_a_provider_runs_is_a_call_or_a_result(
    part: dict[str, Any], calls: list[ToolCall], results: list[ToolResult]
) -> None:
    message = {"role": "assistant", "content": [part, {"type": "text", "text": "so"}]}
    told = Message("assistant", "so", calls=tuple(calls), results=tuple(results))
    assert messages_in([message]) == [told]


def test_other_payloads_with_such_a_type_are_no_calls() -> None:
    for payload in ({"type": "tool_call", "name": "look"}, {"type": "web_search", "query": "q"}):
        assert messages_in(payload) == []
