"""JSON that a limit has cut is no text: its trace is refused, with the name of what was cut."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kp_batch.bounds import breaks_off
from kp_batch.conversion.conversation.messages import JsonText
from tests.support import GOLDEN
from tests.support.formats.agent_runs import LOOKED, LOOKS, ROOT, SYSTEMS, THERE
from tests.support.formats.otlp import TALK, Span, agent, chat, request, span, text
from tests.support.imports.drafting import Conversion, converted

TALKED = json.dumps(TALK)
SAID = json.dumps([text("assistant", "so it is")])
OPENINFERENCE = "openinference.span.kind"


def made_of(folder: Path, *spans: Span) -> Conversion:
    path = folder / "spans.json"
    path.write_text(request([*spans]))
    return converted("otlp", path)


def assert_cut(made: Conversion, field: str) -> None:
    ((_, refused),) = made.refused
    assert (refused.reasons, made.rows) == (["cut_content"], {})
    assert refused.message.startswith(f"{field} begins as JSON and breaks off after ")
    assert "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT" in refused.message


def operation(name: str, **attributes: Any) -> Span:
    return {"gen_ai.operation.name": name, **attributes}


ATTRIBUTES: list[tuple[Span, str, str]] = [  # others, the one that is cut, and its whole content
    (operation("chat"), "gen_ai.input.messages", TALKED),
    (operation("chat"), "gen_ai.output.messages", SAID),
    (operation("invoke_agent"), "gen_ai.output.messages", SAID),
    (operation("chat"), "gen_ai.prompt", TALKED),
    (operation("chat"), "gen_ai.completion", SAID),
    (operation("execute_tool"), "gen_ai.tool.call.arguments", '{"at": 1}'),
    ({"ai.operationId": "ai.generateText"}, "ai.prompt", '{"prompt": "where?"}'),
    ({"ai.operationId": "ai.generateText.doGenerate"}, "ai.prompt.messages", TALKED),
    ({"ai.operationId": "ai.streamText.doStream"}, "ai.response.toolCalls", '[{"toolName": "x"}]'),
    ({"ai.operationId": "ai.generateObject"}, "ai.response.object", '{"at": 1}'),
    ({"ai.operationId": "ai.toolCall"}, "ai.toolCall.args", '{"at": 1}'),
    ({"ai.operationId": "ai.toolCall"}, "ai.toolCall.result", '"it is here"'),
    ({"traceloop.span.kind": "agent"}, "traceloop.entity.input", '{"args": ["where?"]}'),
    ({"traceloop.span.kind": "agent"}, "traceloop.entity.output", '"it is here"'),
    ({"traceloop.span.kind": "tool"}, "traceloop.entity.input", '{"args": [1], "kwargs": {}}'),
    ({OPENINFERENCE: "AGENT"}, "input.value", '{"question": "where?"}'),
    ({OPENINFERENCE: "LLM"}, "output.value", '{"choices": []}'),
    ({OPENINFERENCE: "TOOL"}, "input.value", '{"at": 1}'),
    ({"langsmith.span.kind": "llm"}, "gen_ai.prompt", '{"messages": []}'),
    ({"langsmith.span.kind": "tool"}, "gen_ai.completion", '{"output": "found"}'),
    ({}, "gcp.vertex.agent.llm_request", '{"contents": []}'),
    (operation("chat"), "events", '[{"event.name": "gen_ai.choice"}]'),
    ({"agent_name": "a", "model_name": "m"}, "pydantic_ai.all_messages", SAID),
]


@pytest.mark.parametrize(("others", "name", "whole"), ATTRIBUTES)
def test_an_attribute_that_breaks_off_is_refused_by_its_name(
    tmp_path: Path, others: Span, name: str, whole: str
) -> None:
    asked = agent(attributes={"gen_ai.input.messages": TALKED})
    said = chat(2, TALK, [text("assistant", "so")])
    for length in (1, len(whole) // 2, len(whole) - 1):
        cut = span(1, attributes={**others, name: whole[:length]})
        assert_cut(made_of(tmp_path, asked, cut, said), name)
    assert made_of(tmp_path, asked, span(1, attributes={**others, name: whole}), said).rows


def test_a_text_keeps_its_field_on_the_way_to_another_process() -> None:
    copied = pickle.loads(pickle.dumps(JsonText("gen_ai.prompt", "[1")))
    assert (copied, copied.field) == ("[1", "gen_ai.prompt")


@pytest.mark.parametrize("name", ["content", "message", "gen_ai.event.content"])
def test_so_is_one_of_an_event(tmp_path: Path, name: str) -> None:
    cut = span(1, attributes=operation("chat"), events=[("gen_ai.choice", {name: '[{"text": "so'})])
    assert_cut(made_of(tmp_path, agent(), cut), name)


def test_so_is_one_of_a_log(tmp_path: Path) -> None:
    SYSTEMS["otlp with a log a message"](tmp_path / "logs", [ROOT, LOOKS, LOOKED, THERE])
    path = tmp_path / "logs" / "spans.jsonl"
    path.write_text(path.read_text().replace(r"\"there\"}}", r"\"the"))
    assert_cut(converted("otlp", path), "gen_ai.event.content")


def test_what_is_cut_and_counts_for_nothing_refuses_nothing(tmp_path: Path) -> None:
    """As the state of a graph that each of its nodes repeats."""
    state = {"input.value": '{"messages": [{"ro', "output.value": '{"messages": [{"ro'}
    node = span(1, attributes={OPENINFERENCE: "CHAIN", **state})
    root = {OPENINFERENCE: "CHAIN", "input.value": '{"question": "where?"}'}
    task = {"traceloop.span.kind": "task", "traceloop.entity.input": '{"args": ["wh'}
    told = {"llm.output_messages.0.message.role": "assistant", **state}
    told |= {"llm.output_messages.0.message.content": "so"}
    told |= {"llm.input_messages.0.message.role": "user"}
    told |= {"llm.input_messages.0.message.content": "where?"}
    model = span(2, attributes={OPENINFERENCE: "LLM", **told})
    root_ = span(0, None, attributes={**root, "output.value": state["output.value"]})
    made = made_of(tmp_path, root_, node, span(3, attributes=task), model)
    assert made.row["task"]["objective"] == "where?"
    assert [step["content"] for step in made.row["steps"]] == ["so"]
    asked = span(0, None, attributes={OPENINFERENCE: "CHAIN", **state})
    assert_cut(made_of(tmp_path, asked, node, model), "input.value")  # which is the question's


@pytest.mark.parametrize(
    "question",
    ["[urgent] fix this", "{name} is what?", '{"a": 1} is what?', "[1] says", '"so', "["],
)
def test_a_text_that_only_looks_like_json_is_one(tmp_path: Path, question: str) -> None:
    named = {OPENINFERENCE: "AGENT", "input.value": question, "input.mime_type": "text/plain"}
    model = {OPENINFERENCE: "LLM", "input.value": "x", "output.value": "[done] so"}
    for attributes in (named, {**named, "input.mime_type": "x"})[: 1 + (question != "[")]:
        made = made_of(tmp_path, span(0, None, attributes=attributes), span(1, attributes=model))
        assert made.row["task"]["objective"] == question


def test_what_a_tool_has_read_may_be_the_beginning_of_a_file(tmp_path: Path) -> None:
    head = '{"name": "kp", "ver'
    for system in ("otlp", "otlp of Strands", "otlp of Pydantic AI", "langfuse"):
        SYSTEMS[system](tmp_path / system, [ROOT, LOOKS, replace(LOOKED, answer=head), THERE])
        row = converted(system.partition(" ")[0], tmp_path / system).row
        assert row["steps"][2]["content"] == head, system


@pytest.mark.parametrize(
    ("system", "field"),
    [("langfuse", "input"), ("langsmith", "inputs"), ("phoenix", "input.value")],
)
def test_so_are_rows_of_others(tmp_path: Path, system: str, field: str) -> None:
    root = replace(ROOT, given='{"question": "where is it, p')
    SYSTEMS[system](tmp_path / system, [root, LOOKS, LOOKED, THERE])
    if system == "langsmith":
        path = tmp_path / system / "runs.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows[0][field] = json.dumps(rows[0][field])[:20]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert_cut(converted(system, tmp_path / system), field)


def test_a_langsmith_run_whose_extra_breaks_off_is_refused(tmp_path: Path) -> None:
    SYSTEMS["langsmith"](tmp_path / "runs", [ROOT, LOOKS, LOOKED, THERE])
    path = tmp_path / "runs" / "runs.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["extra"] = '{"metadata": {"thread_id'
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert_cut(converted("langsmith", path), "extra")


def test_examples_come_to_what_they_hold() -> None:
    made = converted("otlp", GOLDEN / "imports" / "otlp")
    told = ["lock_state", "open", "It is open."]
    traces = [
        [step["content"] or step["tool"]["name"] for step in row["steps"]]
        for row in made.rows.values()
    ]
    assert sorted(traces) == [["It is open."], told, told]
    assert made.reasons == [["cut_content"]] * 2
    assert made.skipped == ["memory operation outside an agent's run"]
    models = {row["metadata"]["model"] for row in made.rows.values()}
    assert models == {None, "locks-large"}


def test_any_beginning_of_json_breaks_off_and_nothing_else_does() -> None:
    whole = json.dumps([{"a\\b": "\ud800 ä\n", "b": [1.5e-7, True, None, {}]}, '"', -0.1])
    assert all(breaks_off(whole[:length]) for length in range(1, len(whole)))
    assert not any(map(breaks_off, (whole, f"{whole} ", f"{whole},", f"{whole[:9]}x", "[1}", "{1")))
