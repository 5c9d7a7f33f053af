"""One run comes to the same trace, whichever system of spans tells it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.formats.agent_runs import (
    AFTER,
    ASK,
    LOOK,
    LOOKED,
    LOOKS,
    OF_AGENTS,
    ROOT,
    RUNS,
    SYSTEMS,
    TELLING,
    TEXTS,
    THERE,
    TRACE,
    Step,
    says,
    user,
)
from tests.support.imports.drafting import ALWAYS, always, converted, drafted, transcript
from tests.support.imports.importing import write_json
from tests.support.read.queries import ask

RULES = always(recovery="after_tool_error")


def row_of(tmp_path: Path, system: str, run: Sequence[Step]) -> dict[str, Any]:
    SYSTEMS[system](tmp_path / system, run)
    return converted(system.partition(" ")[0], tmp_path / system, RULES).row


def steps(row: dict[str, Any]) -> list[tuple[tuple[object, ...], object]]:
    """Its steps; arguments may be written with spaces or without."""
    inputs = [step["input"] and json.loads(step["input"]) for step in row["steps"]]
    bare = {"steps": [{**step, "input": None} for step in row["steps"]]}
    return [*zip(transcript(bare), inputs, strict=True)]


@pytest.mark.parametrize("name", RUNS)
def test_every_system_gives_the_same_run_in_whatever_order(tmp_path: Path, name: str) -> None:
    assert_same(tmp_path, SYSTEMS, *RUNS[name])


@pytest.mark.parametrize("name", OF_AGENTS)
def test_every_system_gives_the_same_run_of_an_agent_with_its_question(
    tmp_path: Path, name: str
) -> None:
    assert_same(tmp_path, TELLING, *OF_AGENTS[name])


def assert_same(
    tmp_path: Path, systems: Iterable[str], run: Sequence[Step], types: list[str]
) -> None:
    rows = {system: row_of(tmp_path, system, run[:: (-1) ** n]) for n, system in enumerate(systems)}
    first = rows["otlp"]
    assert (first["id"], first["task"]["objective"]) == (f"kp:trace:{TRACE}", "where is it?")
    assert [step["type"] for step in first["steps"]] == types
    for system, row in rows.items():
        assert steps(row) == steps(first), system
        assert row["task"] == first["task"]
        assert row["native"]["system"] == system.partition(" ")[0]
        assert row["metadata"]["created_at"] == "2026-08-03T09:00:00.000000Z"


def test_agents_within_each_other_answer_from_the_innermost_on(tmp_path: Path) -> None:
    finder = Step("agent", "b", "t", 4, 7, "look at 1", "it is here", "finder")
    inner = replace(LOOKED, id="u", parent="b", start=5, end=6, given={"deep": 1}, call="c2")
    run = [replace(ROOT, given="where is it?", answer="there"), LOOKED, finder, inner]
    told = "look found look·at·1 look found it·is·here there"
    for system in [
        name for name in TELLING if name.lower()[-9:] != "langsmith"
    ]:  # which has no agents
        row = row_of(tmp_path, system, run)
        texts = [step["content"] or step["tool"]["name"] for step in row["steps"]]
        assert " ".join(text.replace(" ", "·") for text in texts) == told, system


@pytest.mark.parametrize("system", TEXTS)
def test_an_agent_whose_answer_repeats_what_it_is_given_says_the_rest(
    tmp_path: Path, system: str
) -> None:
    chat = [user("what is it?"), says("a key"), user("where is it?")]
    given, answer = ({"messages": x} for x in (chat, [*chat, says("a key"), says("there")]))
    root = replace(ROOT, given=json.dumps(given), answer=json.dumps(answer))
    row = row_of(tmp_path, system, [root, LOOKED])
    told = [step["content"] or step["tool"]["name"] for step in row["steps"]]
    assert told == ["where is it?", "look", "found", "a key", "there"]


@pytest.mark.parametrize("system", TEXTS)
def test_the_answer_of_an_agent_is_taken_out_of_the_object_of_langchain(
    tmp_path: Path, system: str
) -> None:
    root = replace(ROOT, given='{"input": "where is it?"}', answer='{"output": "there"}')
    row = row_of(tmp_path, system, [root, LOOKED])
    assert row["task"]["objective"] == "where is it?"
    assert [told[1] for told, _ in steps(row)] == ["look", "found", "there"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_root_whose_parent_another_system_has_is_the_topmost_span(
    tmp_path: Path, system: str
) -> None:
    run, _ = RUNS["a model within the tool that a model's span holds"]
    form, whole = system.partition(" ")[0], tmp_path / "whole"
    SYSTEMS[system](whole, run)
    SYSTEMS[system](tmp_path / "part", [replace(run[0], parent="f"), *run[1:]])
    refused = converted(form, tmp_path / "part", RULES)
    assert refused.reasons == [["incomplete"]]
    assert 'the rule root = "topmost" takes' in refused.refused[0][1].message
    told = drafted(form, tmp_path / "part", always(recovery=RULES.recovery, root="topmost_at_once"))
    assert told.draft == drafted(form, whole, RULES).draft


def test_a_span_without_its_parent_is_no_root_if_there_is_one(tmp_path: Path) -> None:
    lost = replace(LOOKS, parent="f", start=-9)
    SYSTEMS["otlp"](tmp_path / "otlp", [ROOT, lost, LOOKED])
    told = [
        drafted("otlp", tmp_path / "otlp", rules).draft
        for rules in (ALWAYS, always(root="topmost_at_once"))
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize("name", ["a model, a tool, a model", "tools at once"])
def test_a_span_that_a_filter_dropped_changes_no_trace(tmp_path: Path, name: str) -> None:
    run, _ = RUNS[name]
    lost = [replace(step, parent="f") if step.kind == "model" else step for step in run]
    for system in SYSTEMS:
        whole = row_of(tmp_path / "whole", system, run)
        assert steps(row_of(tmp_path / "part", system, lost)) == steps(whole), system


@pytest.mark.parametrize("parent", ["f", "b", "c"])
def test_what_a_model_has_answered_its_agent_does_not_repeat(tmp_path: Path, parent: str) -> None:
    """Wherever that model is: within the agent, beside it, or within what is not there."""
    root = Step("chain", "c", "", 0, 60, name="app")
    run = [
        replace(ROOT, id="b", parent="c", given="where is it?", answer="there"),
        replace(LOOKS, parent=parent),
        replace(LOOKED, parent="b"),
        replace(THERE, parent=parent),
    ]
    for system in TELLING:
        row = row_of(tmp_path, system, [root, *run])
        texts = [step["content"] or step["tool"]["name"] for step in row["steps"]]
        assert texts == ["hm", "look", "found", "there"], system


def test_a_span_within_one_that_is_not_there_is_of_the_last_root_before_it(tmp_path: Path) -> None:
    roots = [ROOT, replace(ROOT, id="b", start=20, name="other")]
    answer = replace(THERE, parent="f", start=21, end=22, given=ASK)
    other = replace(roots[1], answer="elsewhere")
    SYSTEMS["otlp"](tmp_path / "otlp", [replace(ROOT, answer="here"), other, answer])
    told = [step["content"] for step in drafted("otlp", tmp_path / "otlp").draft.steps]
    assert told == ["here", "there"]  # the other agent's own answer is that of its model


@pytest.mark.parametrize("parents", ["fff", "faf"])
def test_without_any_root_what_is_within_nothing_is_topmost(tmp_path: Path, parents: str) -> None:
    at = {"a": "asked", "b": "again", "c": "more"}
    run = [
        Step("model", id_, parent, start, start + 1, [user(text)], says(f"{text}!"))
        for start, ((id_, text), parent) in enumerate(zip(at.items(), parents, strict=True))
    ]
    SYSTEMS["otlp"](tmp_path / "otlp", run)
    row = converted("otlp", tmp_path / "otlp", always(root="topmost_at_once")).row
    assert row["task"]["objective"] == "asked"
    assert row["steps"][0]["content"] == "asked!"


@pytest.mark.parametrize("system", ["otlp", "langfuse", "langsmith"])
def test_a_tool_that_the_model_s_provider_runs_counts_once(tmp_path: Path, system: str) -> None:
    hosted = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "it"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "news"}]},
        {"type": "text", "text": "hm"},
    ]
    asks = {"role": "assistant", "content": hosted, "tool_calls": [LOOK]}
    later = replace(THERE, given=[*ASK, asks, *AFTER[2:]])
    row = row_of(tmp_path, system, [ROOT, replace(LOOKS, answer=asks), LOOKED, later])
    assert [told[1] for told, _ in steps(row)] == [
        *("hm", "web_search", "look", '[{"title":"news"}]', "found", "there")
    ]


@pytest.mark.parametrize("system", ["otlp", "langfuse", "langsmith"])
def test_and_so_it_is_where_its_result_is_a_message_of_its_own(tmp_path: Path, system: str) -> None:
    answer = [
        {"type": "shell_call", "call_id": "s1", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "s1", "output": [{"stdout": "a.txt"}]},
        {"role": "assistant", "content": "hm", "tool_calls": [LOOK]},
    ]
    run = [ROOT, replace(LOOKS, answer=answer), LOOKED, THERE]
    assert [told[1] for told, _ in steps(row_of(tmp_path, system, run))] == [
        *("shell", '[{"stdout":"a.txt"}]', "hm", "look", "found", "there")
    ]


def test_a_text_that_a_model_is_given_is_no_message_of_a_user(tmp_path: Path) -> None:
    first = replace(LOOKS, given="look for it", answer="hm")
    run = [ROOT, first, replace(first, id="n", given="is it there?", answer="yes", start=2)]
    for system in TEXTS:
        row = row_of(tmp_path, system, run)
        assert row["task"]["objective"] == "look for it", system
        assert [step["content"] for step in row["steps"]] == ["hm", "yes"], system


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"args": [], "kwargs": {"at": 1}}, {"at": 1}),
        ({"kwargs": {"at": 1}}, {"at": 1}),
        ({"args": [{"at": 1}], "kwargs": {}}, {"at": 1}),
        ({"args": [1, 2], "kwargs": {}}, [1, 2]),
        ({"args": [1], "kwargs": {"far": True}}, {"args": [1], "kwargs": {"far": True}}),
    ],
)
def test_arguments_are_taken_out_of_their_wrapper(
    tmp_path: Path, given: object, told: object
) -> None:
    for system in SYSTEMS:
        row = row_of(tmp_path, system, [ROOT, replace(LOOKED, given=given), THERE])
        assert steps(row)[0] == (("tool_call", "look"), told), system


@pytest.mark.slow
def test_and_so_it_has_the_same_complexity_and_score(tmp_path: Path) -> None:
    """Novelty, too, where each system's is that of traces of its own."""
    run, _ = RUNS["a model within the tool that a model's span holds"]
    rows = {system: row_of(tmp_path, system, run) for system in SYSTEMS}
    for system, row in rows.items():
        row["metadata"] |= {"framework": system}
        write_json(tmp_path / f"{system}.jsonl", {**row, "id": f"kp:trace:{system}"})
    archive, warehouse = (str(tmp_path / "*.jsonl"),), tmp_path / "warehouse"
    rescore_archive(
        RescoreConfig(
            archive=archive, warehouse=warehouse, embedder="hashing", cache_by=("framework",)
        )
    )
    scores = ask(warehouse, "SELECT complexity, novelty, score FROM scores").rows()
    assert len(scores) == len(SYSTEMS)
    assert len(set(scores)) == 1
