"""What an export of messages needs: roles, ids of calls, the system's words, and the tools."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kp_batch.conversion.conversation.attributes import FlatAttributes
from kp_batch.conversion.conversation.instructions import system_of, tools_of, tools_text
from kp_batch.conversion.conversation.messages import Message, ToolCall, ToolResult
from kp_batch.conversion.conversation.transcript import Transcript
from tests.support.formats import atif, inspect
from tests.support.formats.agent_files import WRITERS, format_of
from tests.support.formats.agent_runs import SYSTEMS, Step, call, result, says, user
from tests.support.imports.drafting import always, converted, drafted
from tests.support.imports.importing import kp_trace, write_json

SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}}
FUNCTION = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
TEXT = json.dumps([TOOL], separators=(",", ":"))
RUN = (
    Step("agent", "a", "", 0, 9, "where?", "there", "helper"),
    Step("model", "b", "a", 1, 2, [user("where?")], says("hm", call("look", "c1", at=1))),
    Step("tool", "c", "a", 3, 4, {"at": 1}, "found", "look", "c1"),
    Step("model", "d", "a", 5, 6, [user("where?"), result("c1", "found")], says("there")),
)


@pytest.mark.parametrize("system", [*WRITERS])
def test_a_step_has_the_role_of_who_said_it_and_the_id_of_its_call(
    tmp_path: Path, system: str
) -> None:
    WRITERS[system](tmp_path / "in", RUN)
    trace = "session" if system.endswith("by session") else "turn"
    rules = always(trace=trace, created_at="2026-05-01")
    (draft,) = drafted(format_of(system), tmp_path / "in", rules).drafts.values()
    told = [(step["type"], step["role"], step["call_id"]) for step in draft.steps]
    id_ = None if system == "knowledgepulse" else "c1"  # a registry's steps have none
    assert told == [
        ("thought", "assistant", None),
        ("tool_call", "assistant", id_),
        ("observation", "tool", id_),
        ("thought", "assistant", None),
    ]


def test_what_a_user_says_meanwhile_is_the_user_s() -> None:
    transcript = Transcript()
    transcript.add_conversation(
        [Message("user", "go"), Message("assistant", "so"), Message("user", "faster")]
    )
    assert [step["role"] for step in transcript.steps] == ["assistant", "user"]


@pytest.mark.parametrize("content", ["found", None])
def test_an_id_that_comes_later_names_the_steps_before(content: str | None) -> None:
    run_first, asked_first = Transcript(), Transcript()
    run_first.add_tool_run(ToolCall("look", {"at": 1}), ToolResult(content))
    run_first.add_answer(Message("assistant", "so", calls=(ToolCall("look", '{"at":1}', "c1"),)))
    asked_first.add_answer(Message("assistant", "", calls=(ToolCall("look", {"at": 1}),)))
    asked_first.add_tool_run(ToolCall("look", {"at": 1}, "c1"), ToolResult(content))
    told = [("tool_call", "c1"), *[("observation", "c1")] * bool(content)]
    for transcript, more in ((run_first, [("thought", None)]), (asked_first, [])):
        assert [(step["type"], step["call_id"]) for step in transcript.steps] == [*told, *more]


def test_the_system_s_first_words_count() -> None:
    transcript = Transcript()
    transcript.add_prompt([Message("system", "be good"), Message("system", "and brief")])
    transcript.add_prompt([Message("system", "another agent's"), Message("user", "go")])
    transcript.add_tool_run(ToolCall("look"), ToolResult("x"))
    assert (transcript.system, transcript.objective) == ("be good\nand brief", "go")
    assert len(transcript.steps) == 2


@pytest.mark.parametrize(
    "tools",
    [
        [TOOL],
        json.dumps([TOOL]),
        [json.dumps(TOOL)],
        [{"type": "function", **FUNCTION}],
        [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}],
        [{"name": "look", "description": "Looks.", "parameters": json.dumps(SCHEMA)}],
        [{"type": "function", "name": "look", "description": "Looks.", "inputSchema": SCHEMA}],
        [{"tool.json_schema": json.dumps(TOOL)}],
        [{"tool": {"json_schema": TOOL}}],
        [TOOL, {"type": "web_search"}, "none", None, {"name": 1}],
    ],
)
def test_tools_are_recorded_in_one_shape(tools: object) -> None:
    assert tools_text(tools) == TEXT


@pytest.mark.parametrize("tools", [None, [], "", "none", "[{", {"look": 1}, [{"type": "search"}]])
def test_what_is_no_tool_is_left_out(tools: object) -> None:
    assert tools_text(tools) == ""


DOTTED = {f"llm.request.functions.0.{name}": value for name, value in FUNCTION.items()}


@pytest.mark.parametrize(
    ("attributes", "payload"),
    [
        ({"gen_ai.tool.definitions": json.dumps([TOOL])}, None),
        ({"llm.tools.0.tool.json_schema": json.dumps(TOOL)}, None),
        ({"llm": {"tools": [{"tool": {"json_schema": json.dumps(TOOL)}}]}}, None),
        ({"mlflow.chat.tools": [TOOL]}, None),
        ({"ai.prompt.tools": [json.dumps(TOOL)]}, None),
        ({**DOTTED, "llm.request.functions.0.parameters": json.dumps(SCHEMA)}, None),
        ({"tools": [TOOL]}, None),
        ({}, {"messages": [], "tools": [TOOL]}),
        ({}, json.dumps({"messages": [], "tools": [TOOL]})),
    ],
)
def test_tools_are_read_from_attributes_or_next_to_messages(
    attributes: Mapping[str, Any], payload: object
) -> None:
    assert tools_of(attributes, payload) == TEXT
    if "llm" not in attributes:
        assert tools_of(FlatAttributes(attributes), payload) == TEXT


PART = [{"type": "text", "content": "be good"}]


@pytest.mark.parametrize(
    ("attributes", "payload"),
    [
        ({"gen_ai.system_instructions": json.dumps(PART)}, None),
        ({"gen_ai.system_instructions": PART}, None),
        ({"gen_ai.system_instructions": "be good"}, None),
        ({}, {"messages": [], "system": "be good"}),
        ({}, {"input": [], "instructions": "be good"}),
        ({}, json.dumps({"messages": [], "system": [{"type": "text", "text": "be good"}]})),
    ],
)
def test_instructions_are_read_from_attributes_or_next_to_messages(
    attributes: Mapping[str, Any], payload: object
) -> None:
    assert system_of(attributes, payload) == "be good"


@pytest.mark.parametrize("payload", ['{"system": "be', '{"tools": [{', "system", None, [], 1])
def test_cut_json_next_to_messages_refuses_nothing(payload: object) -> None:
    assert (system_of({}, payload), tools_of({}, payload)) == ("", "")
    for name in ("gen_ai.tool.definitions", "ai.prompt.tools", "gen_ai.system_instructions"):
        told = {name: '[{"type": "text", "conte'}
        assert (system_of(told, payload), tools_of(told, payload)) == ("", "")


def test_spans_tell_them(tmp_path: Path) -> None:
    SYSTEMS["otlp"](tmp_path / "in", RUN)
    (path,) = (tmp_path / "in").iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    attributes = lines[1]["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    told = {"gen_ai.tool.definitions": [TOOL], "gen_ai.system_instructions": PART}
    for name, value in told.items():
        attributes.append({"key": name, "value": {"stringValue": json.dumps(value)}})
    path.write_text("\n".join(map(json.dumps, lines)))
    row = converted("otlp", tmp_path).row
    task = {"objective": "where?", "system": "be good", "tools": TEXT}
    assert (row["task"], len(row["steps"])) == (task, 4)


def test_a_run_of_langsmith_has_them(tmp_path: Path) -> None:
    SYSTEMS["langsmith"](tmp_path / "in", RUN)
    (path,) = (tmp_path / "in").iterdir()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["extra"] = json.dumps({"invocation_params": {"tools": [TOOL]}})
    path.write_text("\n".join(map(json.dumps, rows)))
    assert converted("langsmith", tmp_path).row["task"]["tools"] == TEXT


def test_rows_and_trajectories_tell_them(tmp_path: Path) -> None:
    talk = [{"role": "system", "content": "be good"}, user("where?"), says("there")]
    row = {"messages": talk, "tools": [TOOL], "at": "2026-05-01"}
    write_json(tmp_path / "rows/a.jsonl", row)
    made = converted("messages", tmp_path / "rows", always(created_at="field:at"))
    steps = {"source": "system", "message": "be good"}, atif.user("where?"), atif.agent("there")
    agent = {"name": "helper", "tool_definitions": [TOOL]}
    write_json(tmp_path / "atif/run.json", atif.trajectory(*steps, agent=agent, started_at="x"))
    told = drafted("atif", tmp_path / "atif").draft
    task = {"objective": "where?", "system": "be good", "tools": TEXT}
    assert made.row["task"] == task
    assert (told.objective, told.system, told.tools) == tuple(task.values())


@pytest.mark.parametrize("in_pairs", [True, False])
def test_an_observation_of_langfuse_defines_them(tmp_path: Path, *, in_pairs: bool) -> None:
    SYSTEMS["langfuse"](tmp_path / "in", RUN)
    (path,) = (tmp_path / "in").iterdir()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    told = json.dumps({"description": "Looks.", "parameters": json.dumps(SCHEMA)})
    for row in rows:
        row["tool_definitions"] = [["look", told]] if in_pairs else {"look": told}
    path.write_text("\n".join(map(json.dumps, rows)))
    assert converted("langfuse", tmp_path).row["task"]["tools"] == TEXT


def test_a_log_of_inspect_has_them_in_its_events(tmp_path: Path) -> None:
    talk = [{"role": "system", "content": "be good"}, user("where?"), says("there")]
    events = [{"event": "sample_init"}, {"event": "model", "tools": [FUNCTION]}]
    sample = inspect.sample(messages=talk, events=events)
    write_json(tmp_path / "log.json", inspect.log(sample))
    draft = drafted("inspect", tmp_path).draft
    assert (draft.system, draft.tools) == ("be good", TEXT)


def test_a_registry_carries_them(tmp_path: Path) -> None:
    step = {"type": "thought", "content": "so", "role": "assistant", "call_id": "c"}
    task = {"objective": "go", "system": "be good", "tools": TEXT}
    write_json(tmp_path / "t.json", kp_trace("a", task=task, steps=[step]))
    row = converted("knowledgepulse", tmp_path, always()).row
    assert (row["task"], row["steps"][0]["call_id"]) == (task, "c")
