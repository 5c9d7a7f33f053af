"""The rule `created_at = "end"`: a trace has the time of its end, as a live engine scores it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kp_batch.conversion.conversation.messages import Message
from kp_batch.conversion.conversation.spans import AgentRun, Span, draft
from kp_batch.conversion.model import TraceDraft
from kp_batch.conversion.rules import load_rules
from tests.support.formats import atif, inspect, sessions
from tests.support.formats.agent_runs import RUNS, SYSTEMS
from tests.support.imports.drafting import ALWAYS, always, converted
from tests.support.imports.importing import kp_trace, write_json

AT_END = always(created_at="end")
NOW = "2026-05-01T09:00:09Z"  # after all steps


def at_end(form: str, source: Path) -> str:
    """When the one trace of a source was, by the rule."""
    return str(converted(form, source, AT_END).row["metadata"]["created_at"])


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_trace_of_spans_ends_with_its_root(tmp_path: Path, system: str) -> None:
    run, _ = RUNS["a model, a tool, a model"]
    SYSTEMS[system](tmp_path / "in", run)
    assert at_end(system.partition(" ")[0], tmp_path / "in") == "2026-08-03T09:01:00.000000Z"


@pytest.mark.parametrize(
    ("roots", "second"),
    [([(1, 5), (2, 7)], 7), ([(1, None)], 4), ([(1, 10**13)], 4)],
)
def test_else_with_the_last_root_or_the_last_span_that_has_a_time(
    roots: list[tuple[int, int | None]], second: int
) -> None:
    content = AgentRun(answer=[Message("assistant", "so")])
    spans = [
        Span(str(n), "", _ns(start), _ns(end), content=content)
        for n, (start, end) in enumerate(roots)
    ]
    spans += [Span("x", "0", _ns(2), _ns(3)), Span("y", "0", _ns(4), None)]
    trace = draft("t", spans, ALWAYS)
    assert isinstance(trace, TraceDraft)
    assert trace.ended_at
    assert trace.ended_at.timestamp() == second


def _ns(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 10**9


@pytest.mark.parametrize(
    ("trial", "more", "ended"),
    [
        ({"agent_execution": {"finished_at": NOW}}, {}, "09.000000"),
        ({"finished_at": NOW}, {}, "05.123456"),
        ({"agent_execution": {"finished_at": NOW}}, {"continued_trajectory_ref": "x"}, "05.123456"),
    ],
)
def test_a_trial_ends_with_its_agent_or_the_last_step_that_has_a_time(
    tmp_path: Path, trial: dict[str, Any], more: dict[str, Any], ended: str
) -> None:
    steps = atif.user("do it"), atif.agent("so", timestamp=atif.at(5)), atif.agent("done")
    write_json(tmp_path / "agent/trajectory.json", atif.trajectory(*steps, **more))
    write_json(tmp_path / "result.json", atif.result(**trial))
    assert at_end("atif", tmp_path) == f"2026-05-01T09:00:{ended}Z"


@pytest.mark.parametrize(
    ("changes", "ended"),
    [
        ({"completed_at": "2025-01-02T09:00:00+01:00"}, "2025-01-02T08:00:00.000000Z"),
        ({}, "2025-01-02T07:04:05.123456Z"),
    ],
)
def test_a_sample_ends_when_it_is_completed_or_with_its_last_event(
    tmp_path: Path, changes: dict[str, Any], ended: str
) -> None:
    write_json(tmp_path / "log.json", inspect.log(inspect.sample(**changes)))
    assert at_end("inspect", tmp_path) == ended


@pytest.mark.parametrize(
    ("columns", "ended"),
    [
        ({"total_time": 90.25}, "2026-01-02T03:05:35.750000Z"),
        ({"total_time": float("inf")}, "2025-01-02T07:04:05.123456Z"),
        ({}, "2025-01-02T07:04:05.123456Z"),
    ],
)
def test_a_transcript_ends_after_the_time_that_it_took_or_with_its_last_event(
    tmp_path: Path, columns: Mapping[str, Any], ended: str
) -> None:
    row = inspect.row(events=json.dumps([inspect.FIRST]), **columns)
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "t.parquet")
    assert at_end("inspect", tmp_path) == ended


def test_a_turn_of_claude_code_ends_with_its_last_step(tmp_path: Path) -> None:
    lines = sessions.user("p", "go"), sessions.says("a", sessions.text("so"), second=4)
    sessions.claude_file(tmp_path, *lines)
    assert at_end("claude-code", tmp_path) == "2026-05-01T09:00:04.500000Z"


@pytest.mark.parametrize(
    ("more", "second"), [(["task_complete"], 7), (["turn_aborted"], 7), ([], 4)]
)
def test_a_turn_of_codex_ends_when_it_is_over_or_with_its_last_step(
    tmp_path: Path, more: list[str], second: int
) -> None:
    lines = sessions.meta(), sessions.started(1), sessions.asked("go"), sessions.answer("so", 4)
    sessions.rollout(tmp_path, *lines, *(sessions.event(kind, 7) for kind in more))
    assert at_end("codex", tmp_path) == f"2026-05-01T09:00:0{second}.500000Z"


def test_a_registry_already_has_the_end(tmp_path: Path) -> None:
    write_json(tmp_path / "t.json", kp_trace("a"))
    assert at_end("knowledgepulse", tmp_path) == "2026-03-01T10:00:00.000000Z"


def test_without_any_time_a_trace_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", atif.trajectory(atif.user("go"), atif.agent("done")))
    ((_, refusal),) = converted("atif", tmp_path, AT_END).refused
    assert refusal.reasons == ["bad_created_at"]
    assert refusal.message == "it has neither an end time nor a step with a time"


def test_what_is_usual_is_not_recorded_so_that_no_archive_is_made_anew() -> None:
    assert always(created_at="start", trace="turn").as_json() == ALWAYS.as_json()
    assert json.loads(load_rules(None, {"created_at": "end"}).as_json()) == {"created_at": "end"}
