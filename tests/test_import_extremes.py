"""Every format alike: a score that is no number, a time of no calendar, times in nanoseconds."""

import json
from collections.abc import Callable, Mapping, Sequence
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kp_batch.importers.catalogue import FORMATS
from kp_batch.importers.rules import load_rules
from kp_batch.operations.importing import import_traces
from kp_batch.operations.results import Imported
from tests.importing import imported, kp_trace, refusals, write_json

Row = dict[str, Any]
RULES = load_rules(
    None,
    {
        "success": {"score": "right", "at_least": 0.5},
        "confidence": {"always": 0.5},
        "task_domain": {"otherwise": "default"},
    },
)
NATIVE = load_rules(None, {})
AT = "2026-08-03T09:00:00.000000Z"
SECONDS = 1_785_747_600
TEXT, NANOSECONDS = "0001-01-01T00:00:00+02:00", 10**24
TIMES = {
    "start_time",
    "end_time",
    "timestamp",
    "updated_at",
    "date",
    "created_at",
    "first_token_time",
}
A_SECOND = {"ms": 10**3, "us": 10**6}
ASK, SO = {"role": "user", "content": "go"}, {"role": "assistant", "content": "so"}


def knowledgepulse(name: str, at: object, score: object) -> Mapping[str, object]:
    made = kp_trace(name, outcome={"confidence": score})
    made["metadata"]["created_at"] = at
    return {f"{name}.json": made}


def otlp(name: str, at: object, score: object) -> Mapping[str, object]:
    judged = {"gen_ai.evaluation.name": "right", "gen_ai.evaluation.score.value": score}
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([ASK]),
        "gen_ai.output.messages": json.dumps([SO]),
    }
    span: Row = {
        "traceId": name[0] * 32,
        "spanId": "a" * 16,
        "startTimeUnixNano": at,
        "endTimeUnixNano": at,
        "attributes": _attributes(said),
        "events": [{"name": "gen_ai.evaluation.result", "attributes": _attributes(judged)}],
    }
    return {f"{name}.json": {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}}


def _attributes(plain: Row) -> list[Row]:
    return [
        {"key": key, "value": {"stringValue" if isinstance(value, str) else "doubleValue": value}}
        for key, value in plain.items()
    ]


def phoenix(name: str, at: object, score: object) -> Mapping[str, object]:
    row: Row = {"context.trace_id": name, "context.span_id": "s", "parent_id": None}
    row |= {"start_time": at, "end_time": at, "attributes.openinference.span.kind": "LLM"}
    row |= {"attributes.input.value": "go", "attributes.output.value": "so"}
    row["attributes.annotations"] = [{"annotation.name": "right", "annotation.score": score}]
    return {"spans.parquet": row, "events": [{"name": "e", "timestamp": at}]}


def langfuse(name: str, at: object, score: object) -> Mapping[str, object]:
    seen = {"trace_id": name, "start_time": at, "end_time": at, "updated_at": at}
    root = {**seen, "id": f"{name}-root", "type": "AGENT", "parent_observation_id": ""}
    asked = {**seen, "id": f"{name}-ask", "type": "GENERATION", "input": "go", "output": "so"}
    asked["parent_observation_id"] = f"{name}-root"
    judged = {"id": name, "trace_id": name, "timestamp": at, "name": "right", "value": score}
    return {"observations.jsonl": [root, asked], "scores.jsonl": judged}


def langsmith(name: str, at: object, score: object) -> Mapping[str, object]:
    run: Row = {"id": name, "trace_id": name, "parent_run_id": None, "run_type": "llm"}
    run |= {"start_time": at, "end_time": at, "inputs": "go", "outputs": "so"}
    return {"runs.jsonl": {**run, "feedback_stats": json.dumps({"right": {"avg": score}})}}


def atif(name: str, at: object, score: object) -> Mapping[str, object]:
    steps = [
        {"source": "user", "message": "go", "timestamp": at},
        {"source": "agent", "message": "so", "timestamp": at},
    ]
    told = {"schema_version": "ATIF-v1.6", "trajectory_id": name, "agent": {}, "steps": steps}
    result = {
        "trial_name": name,
        "started_at": at,
        "verifier_result": {"rewards": {"right": score}},
    }
    return {f"{name}/agent/trajectory.json": told, f"{name}/result.json": result}


def inspect(name: str, at: object, score: object) -> Mapping[str, object]:
    sample = {"uuid": name, "started_at": at, "input": "go", "messages": [ASK, SO]}
    event = {"event": "sample_init", "timestamp": at}
    return {"log.json": {**sample, "events": [event], "scores": {"right": {"value": score}}}}


def scout(name: str, at: object, score: object) -> Mapping[str, object]:
    talk = json.dumps([ASK, SO])
    return {
        "t.parquet": {"transcript_id": name, "date": at, "messages": talk, "score_right": score}
    }


Make = Callable[[str, Any, Any], Mapping[str, Any]]
"""A trace with this time everywhere, and this score: rows, or a whole value, by files' names."""

# JSON, with a time outside all calendars; and Parquet.
TEXTS: list[tuple[str, Make, object, object]] = [
    ("knowledgepulse", knowledgepulse, AT, TEXT),
    ("otlp", otlp, str(SECONDS * 10**9), str(NANOSECONDS)),
    ("langfuse", langfuse, AT, TEXT),
    ("langsmith", langsmith, AT, TEXT),
    ("atif", atif, AT, TEXT),
    ("inspect", inspect, AT, TEXT),
]
COLUMNS: list[tuple[str, Make]] = [
    ("phoenix", phoenix),
    ("langfuse", langfuse),
    ("langsmith", langsmith),
    ("inspect", scout),
]


def write_texts(folder: Path, traces: Sequence[Mapping[str, Any]]) -> None:
    """A file a trace, or of all traces its lines, or a log of samples."""
    for name in {each for trace in traces for each in trace}:
        told = [trace[name] for trace in traces if name in trace]
        if name.endswith(".jsonl"):
            rows = [row for each in told for row in (each if isinstance(each, list) else [each])]
            path = write_json(folder / name, None)
            path.write_text("\n".join(map(json.dumps, rows)))
        else:
            log = {"eval": {"task": "t"}, "samples": told}
            write_json(folder / name, log if name == "log.json" else told[0])


def write_columns(folder: Path, traces: Sequence[Mapping[str, Any]], unit: str) -> None:
    """The same as Parquet, with the times as counts of this unit."""
    for name in {each for trace in traces for each in trace if "." in each}:
        told = [trace[name] for trace in traces]
        rows = [row for each in told for row in (each if isinstance(each, list) else [each])]
        columns: dict[str, pa.Array] = {}
        for key in {key for row in rows for key in row}:
            kind = pa.timestamp(unit, "+05:30") if key in TIMES else None
            columns[key] = pa.array([row.get(key) for row in rows], kind)
        if name == "spans.parquet":
            kind = pa.list_(pa.struct({"name": pa.string(), "timestamp": pa.timestamp(unit)}))
            columns["events"] = pa.array([each["events"] for each in traces], kind)
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), folder / Path(name).with_suffix(".parquet"))


def import_all(name: str, tmp_path: Path) -> Imported:
    rules = NATIVE if name == "knowledgepulse" else RULES
    return import_traces(FORMATS[name], [str(tmp_path / "source")], tmp_path / "out", rules)


def reasons(tmp_path: Path) -> list[list[str]]:
    """Why traces are refused, beside one that is not."""
    assert len(imported(tmp_path / "out")) == 1
    return [each["reasons"] for each in refusals(tmp_path / "out")]


@pytest.mark.parametrize("score", [nan, inf, -inf, 10**400], ids=["nan", "inf", "-inf", "large"])
@pytest.mark.parametrize(("name", "make", "at", "_"), TEXTS, ids=lambda each: str(each)[:10])
def test_a_score_that_is_no_finite_number_decides_nothing(
    tmp_path: Path, name: str, make: Make, at: object, _: object, score: float
) -> None:
    write_texts(tmp_path / "source", [make("aa", at, 1), make("bb", at, score)])
    import_all(name, tmp_path)
    reason = "bad_confidence" if name == "knowledgepulse" else "missing_success"
    assert reasons(tmp_path) == [[reason]]


@pytest.mark.parametrize(("name", "make"), COLUMNS)
def test_nor_does_one_in_a_column(tmp_path: Path, name: str, make: Make) -> None:
    at = SECONDS * 10**6
    write_columns(tmp_path / "source", [make("aa", at, 1.0), make("bb", at, nan)], "us")
    import_all(name, tmp_path)
    assert reasons(tmp_path) == [["missing_success"]]


@pytest.mark.parametrize(("name", "make", "at", "extreme"), TEXTS)
def test_a_time_outside_the_years_1_to_9999_is_that_trace_s_alone(
    tmp_path: Path, name: str, make: Make, at: object, extreme: object
) -> None:
    write_texts(tmp_path / "source", [make("aa", at, 1), make("bb", extreme, 1)])
    import_all(name, tmp_path)
    assert reasons(tmp_path) == [["bad_created_at"]]


@pytest.mark.parametrize("extreme", [2**62, -(2**62)])
@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize(("name", "make"), COLUMNS)
def test_nor_does_one_in_a_column_hide_others(
    tmp_path: Path, name: str, make: Make, unit: str, extreme: int
) -> None:
    at = SECONDS * A_SECOND[unit]
    write_columns(tmp_path / "source", [make("aa", at, 1.0), make("bb", extreme, 1.0)], unit)
    import_all(name, tmp_path)
    assert reasons(tmp_path) == [["bad_created_at"]]


@pytest.mark.parametrize(("name", "make"), COLUMNS)
def test_times_in_nanoseconds_are_cut_to_microseconds(
    tmp_path: Path, name: str, make: Make
) -> None:
    write_columns(tmp_path / "source", [make("aa", SECONDS * 10**9 + 1_999, 1.0)], "ns")
    told = import_all(name, tmp_path)
    assert not told.refused
    (row,) = imported(tmp_path / "out").values()
    assert row["metadata"]["created_at"] == "2026-08-03T09:00:00.000001Z"
