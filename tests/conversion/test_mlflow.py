"""MLflow's traces: those of `golden/imports/mlflow` are as MLflow 3.17 has written them."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kp_batch.conversion.formats import detect_format, mlflow
from kp_batch.conversion.model import SourceRecord, TraceDraft
from kp_batch.files import open_regular
from tests.support import GOLDEN
from tests.support.formats.kits import KITS, SECONDS
from tests.support.formats.otlp import TALK, agent, attributes, chat, request, span, text
from tests.support.imports.drafting import always, drafted, transcript

Row = dict[str, Any]
RECORDED = GOLDEN / "imports" / "mlflow"
RECOVERY = always(recovery="after_tool_error")
AT = SECONDS * 10**9
OPENAI, RESPONSES = "66bea284748311811a68d1f958957eae", "db46c6ebc5400b3a4cdd12c731249e04"
LANGCHAIN, ANTHROPIC = "591b7f64be6f1c06bcb01a83d6ae8157", "a5685bd9f0c1128cc2cfe81a41d2c8a8"


def recorded(trace: str) -> TraceDraft:
    return drafted("mlflow", RECORDED, RECOVERY).drafts[f"kp:trace:{trace}"]


def test_a_failed_tool_and_feedback_are_read() -> None:
    trace = recorded(OPENAI)
    assert str(trace.created_at) == "2026-11-29 19:40:20.490422+00:00"
    assert str(trace.ended_at) == "2026-11-29 19:40:20.594885+00:00"
    assert trace.objective == "Where is my order 7?"
    assert transcript(trace) == [
        ("thought", "I look for order 7."),
        ("tool_call", "find_order", '{"id": 7}'),
        ("observation", "no order 7"),
        ("tool_call", "find_order", '{"id": 8}'),
        ("tool_call", "note", '{"text": "7 is 8"}'),
        ("observation", '{"id":8,"state":"shipped"}'),
        ("observation", "noted: 7 is 8"),
        ("error_recovery", "Order 8 is shipped."),
    ]
    assert trace.scores == {"correct": 1.0, "rating": 4.0}
    assert trace.fields["tags.team"] == ["billing"]
    assert trace.fields["metadata.mlflow.trace.user"] == ["ada"]
    assert (trace.origin.agent, trace.origin.model) == ("shop agent", "gpt-x")
    assert (trace.origin.session, trace.native.root) == ("chat-1", "6ac409f46b1aa744")


@pytest.mark.parametrize(
    ("trace", "objective", "steps"),
    [
        (
            ANTHROPIC,
            "And order 9?",
            [
                ("thought", "I need the state.\nI look."),
                ("tool_call", "find_order", '{"id":9}'),
                ("observation", '{"id":9,"state":"shipped"}'),
                ("thought", "It is shipped."),
            ],
        ),
        (RESPONSES, "What is 2 + 2?", [("thought", "Easy.\nFour.")]),
        (
            LANGCHAIN,
            "How is it in Bern?",
            [
                ("thought", "I ask."),
                ("tool_call", "weather", '{"city": "Bern"}'),
                ("observation", "rain in Bern"),
                ("thought", "It rains in Bern."),
            ],
        ),
    ],
)
def test_makers_messages_are_read(trace: str, objective: str, steps: list[Row]) -> None:
    draft = recorded(trace)
    assert (draft.objective, transcript(draft)) == (objective, steps)


def test_an_archive_is_the_same_trace_as_otlp() -> None:
    (archived,) = drafted("otlp", RECORDED / "archive").drafts.values()
    assert archived == recorded(ANTHROPIC)


def rows() -> list[Row]:
    return [json.loads(line) for line in (RECORDED / "traces.jsonl").read_text().splitlines()]


def written(folder: Path, *traces: Row) -> Path:
    path = folder / "traces.jsonl"
    path.write_text("\n".join(map(json.dumps, traces)))
    return path


def test_rows_of_a_search_are_traces(tmp_path: Path) -> None:
    found = [{"trace_id": "x", "trace": json.dumps(row), "spans": []} for row in rows()]
    made = drafted("mlflow", written(tmp_path, *found))
    assert made == drafted("mlflow", RECORDED / "traces.jsonl")


def test_spans_of_mlflow_2_are_read(tmp_path: Path) -> None:
    row = rows()[0]
    names = {"start_time": "start_time_unix_nano", "end_time": "end_time_unix_nano"}
    hexed = {span["span_id"]: f"0x{n:016x}" for n, span in enumerate(row["data"]["spans"], 1)}
    old = [
        {
            "name": each["name"],
            "context": {"trace_id": f"0x{OPENAI}", "span_id": hexed[each["span_id"]]},
            "parent_id": hexed.get(each["parent_span_id"]),
            **{new: each[name] for new, name in names.items()},
            "status_code": each["status"]["code"].removeprefix("STATUS_CODE_"),
            "attributes": each["attributes"],
            "events": [],
        }
        for each in row["data"]["spans"]
    ]
    info = {"request_id": "tr-77", "request_metadata": {"mlflow.trace.session": "chat-1"}}
    info["assessments"] = row["info"]["assessments"]
    made = drafted("mlflow", written(tmp_path, {"info": info, "data": {"spans": old}}), RECOVERY)
    trace = recorded(OPENAI)
    assert transcript(made.draft) == transcript(trace)
    assert (made.draft.id, made.draft.scores) == (trace.id, trace.scores)
    assert made.draft.origin == trace.origin


def numbered(row: Row) -> Row:
    """A trace as MLflow 3.5 has it, which numbers spans of one name, and tells no levels."""
    names = [each["name"] for each in row["data"]["spans"]]
    for place, each in enumerate(row["data"]["spans"]):
        if names.count(each["name"]) > 1:
            each["name"] += f"_{names[: place + 1].count(each['name'])}"
        each["attributes"].pop("mlflow.spanLogLevel")
    return row


def test_spans_of_one_name_that_mlflow_has_numbered_are_of_one_tool(tmp_path: Path) -> None:
    row = numbered(rows()[0])
    assert {"find_order_1", "find_order_2"} <= {each["name"] for each in row["data"]["spans"]}
    made = drafted("mlflow", written(tmp_path, row), RECOVERY)
    assert transcript(made.draft) == transcript(recorded(OPENAI))


@pytest.mark.parametrize("names", [("look_1", "see_2"), ("look_1", "look_3"), ("look_1", "look")])
def test_other_numbers_are_parts_of_names(tmp_path: Path, names: tuple[str, str]) -> None:
    (trace,) = KITS["mlflow"].make("aa", AT, 1.0)["traces.jsonl"]
    for place, name in enumerate(names, 1):
        tool = {**trace["data"]["spans"][1], "span_id": f"{place}" * 16, "name": name}
        tool["attributes"] = {"mlflow.spanType": '"TOOL"', "mlflow.spanInputs": f"{place}"}
        trace["data"]["spans"].append(tool)
    steps = transcript(drafted("mlflow", written(tmp_path, trace)).draft)
    assert [step[1] for step in steps if step[0] == "tool_call"] == [*names]


@pytest.mark.parametrize("output", ["so", ["so"]])
def test_a_model_may_answer_with_a_list_of_texts(tmp_path: Path, output: object) -> None:
    (trace,) = KITS["mlflow"].make("aa", AT, 1.0)["traces.jsonl"]
    trace["data"]["spans"][1]["attributes"]["mlflow.spanOutputs"] = json.dumps(output)
    assert transcript(drafted("mlflow", written(tmp_path, trace)).draft) == [("thought", "so")]


def feedback(value: object, at: str = "2026-08-03T09:00:00Z", **more: Any) -> Row:
    judged = {"assessment_name": "right", "last_update_time": at, "feedback": {"value": value}}
    return {**judged, **more}


@pytest.mark.parametrize(
    ("assessments", "scores"),
    [
        ([feedback(value="yes")], {"right": 1.0}),
        ([feedback(value="no")], {"right": 0.0}),
        ([feedback(value=2), feedback("2026", "2026-08-04T09:00:00Z")], {"right": 2.0}),
        ([feedback(3, "2026-08-05T09:00:00Z"), feedback(2)], {"right": 3.0}),
        ([feedback(3, "2026-08-05T09:00:00Z", valid=False), feedback(2)], {"right": 2.0}),
        ([feedback(2, span_id="a" * 16), feedback(3, span_id="b" * 16)], {"right": 2.0}),
        ([{**feedback(None), "expectation": {"value": 1}}], {}),
        ([{**feedback(None), "feedback": {"error": {"error_code": "x"}}}], {}),
    ],
)
def test_the_latest_valid_feedback_counts(
    tmp_path: Path, assessments: list[Row], scores: dict[str, float]
) -> None:
    (trace,) = KITS["mlflow"].make("aa", AT, None)["traces.jsonl"]
    trace["info"]["assessments"] = assessments
    assert drafted("mlflow", written(tmp_path, trace)).draft.scores == scores


def test_a_trace_of_a_scorer_is_passed_over(tmp_path: Path) -> None:
    (trace,) = KITS["mlflow"].make("aa", AT, 1.0)["traces.jsonl"]
    trace["info"]["tags"] = {"mlflow.trace.sourceScorer": "correctness"}
    assert drafted("mlflow", written(tmp_path, trace)).skipped == ["trace of a scorer"]


def of_kind(number: int, kind: str, given: object, answer: object, **own: Any) -> Row:
    """A span of MLflow in OTLP, as its exporter writes it."""
    told = {"spanType": kind, "spanInputs": given, "spanOutputs": answer}
    named = {f"mlflow.{name}": json.dumps(each) for name, each in told.items() if each is not None}
    more = {name: json.dumps(each) for name, each in own.pop("attributes", {}).items()}
    return span(number, attributes={**named, **more}, **own)


def exported(folder: Path, *spans: Row) -> TraceDraft:
    path = folder / "spans.jsonl"
    path.write_text(request([*spans]))
    return drafted("otlp", path).draft


def test_a_function_that_has_tools_is_an_agent(tmp_path: Path) -> None:
    root = of_kind(0, "UNKNOWN", {"question": "where?"}, "there", parent=None)
    draft = exported(tmp_path, root, of_kind(1, "TOOL", {"at": 1}, '{"a": 1}', name="look"))
    assert draft.objective == "where?"
    assert transcript(draft) == [
        ("tool_call", "look", '{"at":1}'),
        ("observation", '{"a": 1}'),  # a text, as it is
        ("thought", "there"),
    ]


def test_a_function_without_tools_or_models_is_no_agent(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text(request([of_kind(0, "UNKNOWN", {"x": 1}, 2, parent=None)]))
    assert drafted("otlp", path).skipped == ["no span of an agent"]


def test_a_run_of_pydantic_ai_has_its_prompt_as_the_question(tmp_path: Path) -> None:
    parts = [{"content": "here", "part_kind": "text"}]
    root = of_kind(0, "AGENT", {"user_prompt": "where?"}, {"output": "here"}, parent=None)
    draft = exported(tmp_path, root, of_kind(1, "LLM", {"messages": []}, {"parts": parts}))
    assert (draft.objective, transcript(draft)) == ("where?", [("thought", "here")])


def test_a_method_that_runs_an_agent_is_not_its_name(tmp_path: Path) -> None:
    root = of_kind(0, "AGENT", "where?", "here", parent=None, name="AgentRunner.run")
    draft = exported(tmp_path, root, of_kind(1, "AGENT", None, None, name="finder"))
    assert draft.origin.agent == "finder"


def test_tools_of_claude_code_have_their_own_names(tmp_path: Path) -> None:
    root = of_kind(0, "AGENT", {"prompt": "list it"}, {"response": "x"}, parent=None)
    known = {"tool_name": "Bash", "tool_id": "toolu_1"}
    given = {"command": "ls"}
    ran = of_kind(1, "TOOL", given, {"result": "a"}, name="tool_Bash", attributes=known)
    said = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "one"}]}
    draft = exported(tmp_path, root, ran, of_kind(2, "LLM", {"messages": []}, said))
    assert draft.objective == "list it"
    assert transcript(draft) == [
        ("tool_call", "Bash", '{"command":"ls"}'),
        ("observation", "a"),
        ("thought", "one"),
    ]


def test_models_of_bedrock_answer_in_blocks(tmp_path: Path) -> None:
    asked = {"role": "user", "content": [{"text": "where?"}]}
    use = {"toolUse": {"toolUseId": "c", "name": "look", "input": {"at": 1}}}
    calls = {"role": "assistant", "content": [{"text": "hm"}, use]}
    found = {"toolResult": {"toolUseId": "c", "content": [{"text": "found"}], "status": "error"}}
    given = [asked, calls, {"role": "user", "content": [found]}]
    says = {"role": "assistant", "content": [{"text": "here"}]}
    draft = exported(
        tmp_path,
        of_kind(0, "AGENT", {"question": "where?"}, None, parent=None),
        of_kind(1, "LLM", {"messages": [asked]}, {"output": {"message": calls}}),
        of_kind(2, "LLM", {"messages": given}, {"output": {"message": says}}),
    )
    assert transcript(draft) == [
        ("thought", "hm"),
        ("tool_call", "look", '{"at":1}'),
        ("observation", "found"),
        ("thought", "here"),
    ]


def test_what_a_span_says_in_another_dialect_comes_first(tmp_path: Path) -> None:
    both = chat(1, TALK, [text("assistant", "so")])
    both["attributes"] += attributes({"mlflow.spanType": '"LLM"', "mlflow.spanOutputs": '"no"'})
    assert transcript(exported(tmp_path, agent(), both)) == [("thought", "so")]


def test_a_text_that_a_limit_has_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    root = of_kind(0, "AGENT", {"question": "where?"}, "there", parent=None)
    root["attributes"] += attributes({"mlflow.spanInputs": '{"question": "whe'})
    path.write_text(request([root]))
    ((_, refused),) = drafted("otlp", path).refused
    assert refused.reasons == ["cut_content"]
    assert "mlflow.spanInputs" in refused.message


def head(path: str) -> bytes:
    with open_regular(Path(path)) as file:
        return file.read(1 << 16)


def detected(folder: Path) -> str:
    paths = sorted(str(path) for path in folder.rglob("*") if path.is_file())
    return detect_format(paths, head, lambda path: nullcontext(Path(path))).name


@pytest.mark.parametrize("part", ["", "archive", "artifacts"])
def test_its_files_are_detected(part: str) -> None:
    assert detected(RECORDED / part) == "mlflow"


def test_nor_are_those_of_others_taken_for_its() -> None:
    paths = [*RECORDED.parent.rglob("*.json*")]
    assert {path.is_relative_to(RECORDED) for path in paths} == {True, False}
    for path in paths:
        items = [*mlflow.records(path, [])]
        is_read = any(isinstance(item, SourceRecord) for item in items)
        assert is_read == path.is_relative_to(RECORDED), path


def test_files_of_otlp_are_not(tmp_path: Path) -> None:
    (tmp_path / "traces.json").write_text(request([agent(), chat(1, TALK, None)]))
    (archived,) = (RECORDED / "archive").rglob("traces.pb")
    shutil.copy(archived, tmp_path)
    assert detected(tmp_path) == "otlp"


def test_json_of_others_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"resourceSpans": []})
    assert drafted("mlflow", path).reasons == [["malformed_json"]]
    assert drafted("mlflow", written(tmp_path, {"spans": []})).skipped == ["trace without a span"]
    spanless = {"spans": [{"name": "x"}]}
    assert drafted("mlflow", written(tmp_path, spanless)).reasons == [["missing_id"]]
