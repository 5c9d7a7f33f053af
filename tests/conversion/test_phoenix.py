"""Phoenix's data frames of spans, which become what OTLP's spans do."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kp_batch.conversion.formats import phoenix
from kp_batch.conversion.model import SourceRecord
from kp_batch.imports.importing import import_traces
from tests.support.imports.drafting import Conversion, always, drafted, transcript
from tests.support.imports.importing import imported

TRACE = "0af7651916cd43dd8448eb211c80319c"
START = datetime(2026, 3, 1, 1, 30, 0, 123_456, timezone(timedelta(hours=2)))
RULES = always(
    recovery="after_tool_error",
    success={"score": "correct", "at_least": 1},
    task_domain={"from": "tag.tags", "map": {"flights": "finance"}},
)
QUESTION = {"message.role": "user", "message.content": "where?"}
CALL = {
    "tool_call.id": "c1",
    "tool_call.function.name": "look",
    "tool_call.function.arguments": '{"at": 1}',
}
CALLS = {"message.role": "assistant", "message.tool_calls": [CALL]}
RESULT = {"message.role": "tool", "message.content": "found", "message.tool_call_id": "c1"}
SAYS = {"message.role": "assistant", "message.content": "here"}
ROOT = {
    "openinference.span.kind": "AGENT",
    "tag.tags": ["vip", "flights"],
    "annotations": [{"annotation.name": "correct", "annotation.score": 1.0}],
}
TOOL = {
    "openinference.span.kind": "TOOL",
    "tool.name": "look",
    "tool.id": "c1",
    "input.value": '{"at": 1}',
    "output.value": "found",
}
STEPS = [
    ("tool_call", "look", '{"at": 1}'),
    ("observation", "found"),
    ("error_recovery", "here"),
]


def model(prompt: list[dict[str, Any]], answer: dict[str, Any]) -> dict[str, Any]:
    messages = {"llm.input_messages": prompt, "llm.output_messages": [answer]}
    return {"openinference.span.kind": "LLM", **messages}


def row(number: int, attributes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    start = START + timedelta(seconds=number)
    return {
        "name": "a span",
        "parent_id": None if number == 0 else "s0",
        "start_time": start,
        "end_time": start + timedelta(seconds=1),
        "status_code": "OK",
        "context.span_id": f"s{number}",
        "context.trace_id": TRACE,
        **{f"attributes.{name}": value for name, value in attributes.items()},
        **changes,
    }


def spans() -> list[dict[str, Any]]:
    return [
        row(3, model([QUESTION, CALLS, RESULT], SAYS)),
        row(2, TOOL, status_code="ERROR"),
        row(1, model([QUESTION], CALLS)),
        row(0, ROOT),
    ]


def nested(value: Any) -> Any:
    """The same with each dot of a name a level of its own."""
    if isinstance(value, list):
        return [nested(element) for element in value]
    if not isinstance(value, dict):
        return value
    tree: dict[str, Any] = {}
    for name, child in value.items():
        *path, last = name.split(".")
        inner = tree
        for key in path:
            inner = inner.setdefault(key, {})
        inner[last] = nested(child)
    return tree


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    frame = pl.DataFrame(rows, infer_schema_length=None, strict=False)
    times = [name for name in ("start_time", "end_time") if name in frame.columns]
    frame.with_columns(pl.col(times).cast(pl.Datetime("ns", "UTC"))).write_parquet(path)
    return path


def read(path: Path) -> Conversion:
    return drafted("phoenix", path, RULES)


@pytest.mark.parametrize("form", [list[object], nested])
def test_columns_are_dotted_or_nested(tmp_path: Path, form: Any) -> None:
    trace = read(written(tmp_path / "a.parquet", form(spans()))).draft
    assert trace.id == f"kp:trace:{TRACE}"
    assert trace.created_at == datetime(2026, 2, 28, 23, 30, 0, 123_456, UTC)
    assert trace.objective == "where?"
    assert transcript(trace) == STEPS
    assert trace.scores == {"correct": 1.0}
    assert trace.fields["tag.tags"] == ["vip", "flights"]


@pytest.mark.parametrize("form", [list[object], nested])
def test_other_dialects_are_read_or_refused_as_those_of_otlp(tmp_path: Path, form: Any) -> None:
    numbered = {
        "gen_ai.prompt": [{"role": "user", "content": "where?"}],
        "gen_ai.completion": [{"role": "assistant", "content": "here"}],
        "llm.request.type": "chat",
    }
    rows = form([row(1, numbered), row(0, {"traceloop.span.kind": "workflow"})])
    trace = read(written(tmp_path / "a.parquet", rows)).draft
    assert (trace.objective, transcript(trace)) == ("where?", [("thought", "here")])
    rows = form([row(1, {"lmnr.span.type": "LLM"}), row(0, {})])
    made = read(written(tmp_path / "a.parquet", rows))
    assert made.reasons == [["unknown_dialect"]]


def test_the_kind_may_be_only_in_its_column(tmp_path: Path) -> None:
    rows = [
        row(0, {}, span_kind="AGENT"),
        row(1, {"input.value": "where?", "output.value": "here"}, span_kind="LLM"),
    ]
    trace = read(written(tmp_path / "a.parquet", rows)).draft
    assert (trace.objective, transcript(trace)) == ("where?", [("thought", "here")])


@pytest.mark.parametrize("form", [json.dumps, dict[str, Any]])
def test_events_are_read(tmp_path: Path, form: Any) -> None:
    attributes = {"gen_ai.evaluation.name": "correct", "gen_ai.evaluation.score.value": 2.0}
    event = {
        "name": "gen_ai.evaluation.result",
        "timestamp": START.isoformat(),
        "attributes": attributes,
    }
    path = written(tmp_path / "a.parquet", [row(0, {**ROOT, "x": 1}, events=[form(event)])])
    (unit,) = phoenix.FORMAT.records(path, [])
    assert isinstance(unit, SourceRecord)
    assert str(attributes) in str(unit.payload)
    assert "'time': 1772321400123456000" in str(unit.payload)


def test_what_pandas_leaves_empty_is_left_out(tmp_path: Path) -> None:
    lacks = [{"annotation.name": "correct", "annotation.score": float("nan")}]
    rows = [row(0, {**ROOT, "annotations": lacks}), row(1, {"openinference.span.kind": "LLM"})]
    assert read(written(tmp_path / "a.parquet", rows)).draft.scores == {}


def test_a_root_that_has_not_ended_is_incomplete(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", [row(0, ROOT, end_time=None), row(1, TOOL)])
    assert read(path).reasons == [["incomplete"]]


def test_a_span_without_ids_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", [row(0, ROOT), {**row(1, TOOL), "context.trace_id": ""}])
    assert read(path).reasons == [["missing_id"]]


def test_a_file_without_ids_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", [{"name": "x", "start_time": START}])
    ((_, refusal),) = read(path).refused
    assert refusal.reasons == ["missing_column"]
    assert refusal.message == "it has no column context.trace_id, context.span_id, parent_id"


def test_traces_of_several_files_are_imported(tmp_path: Path) -> None:
    rows = spans()
    (tmp_path / "in").mkdir()
    written(tmp_path / "in/1.parquet", rows[:3])
    written(tmp_path / "in/2.parquet", nested(rows[2:]))
    summary = import_traces(phoenix.FORMAT, [str(tmp_path / "in")], tmp_path / "out", RULES)
    assert (summary.traces, summary.refused) == (1, {})
    trace = imported(tmp_path / "out")[f"kp:trace:{TRACE}"]
    assert trace["metadata"]["success"] is True
    assert trace["metadata"]["task_domain"] == "finance"
    assert transcript(trace) == STEPS
