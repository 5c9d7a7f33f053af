"""The file that says how the last run ended: who reads it, and what anybody may have written."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kp_batch.errors import BusyError, OvertakenError, WarehouseError
from kp_batch.warehouse.audits import AuditResult
from kp_batch.warehouse.last_run import Attempt, LastRuns, current_attempt, recorded_attempt
from kp_batch.warehouse.lock import holder, locked
from kp_batch.warehouse.reasons import Reason, RolledBack
from kp_batch.warehouse.run_record import RunCounts
from kp_batch.warehouse.run_result import RunResult, later
from tests.support.faults.calls import failing_calls

AT = "2026-01-05T02:15:00+00:00"
COUNTS = RunCounts(
    **{name: 0 for name, kind in RunCounts.__annotations__.items() if kind is int},
    rejected_by_code={"no_steps": 3},
    unreadable_files=["/home/a.jsonl"],
)
AUDITS = [AuditResult("always", "warn", 7, allowed=False, first=('{"text":"quoted"}',))]
FAILED = RunResult.here("running").ended("failed", "the disk", "disk_full")
DONE = RunResult.here(
    "running", started_at=AT, run_id="r", counts=COUNTS, audits=AUDITS, newest_trace=AT
).ended("done")
UNDONE = RolledBack("a", "b", (Reason("weights", "0.2 to 0.3", {"novelty": 0.3}, of="code"),))
RUNS = {
    "failed": LastRuns().after(FAILED),
    "done": LastRuns().after(DONE.kept),
    "failed later": LastRuns().after(DONE.kept).after(FAILED),
    "rolled back": LastRuns().after(replace(DONE, rolled_back=UNDONE).kept),
}


def _text(runs: LastRuns) -> str:
    return json.dumps(runs, default=asdict)


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_what_is_written_is_read(tmp_path: Path, runs: LastRuns) -> None:
    assert LastRuns.read(tmp_path) == LastRuns()
    runs.write(tmp_path)
    assert _text(LastRuns.read(tmp_path)) == _text(runs)
    assert [path.name for path in tmp_path.iterdir()] == ["last-run.json"]


def test_it_keeps_no_text_of_a_trace_and_no_list_of_files(tmp_path: Path) -> None:
    RUNS["done"].write(tmp_path)
    content = (tmp_path / "last-run.json").read_text()
    assert "quoted" not in content
    assert "a.jsonl" not in content


def test_a_file_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    RUNS["done"].write(tmp_path)
    attempt = Attempt(tmp_path, FAILED)
    with failing_calls(tmp_path, 1) as calls:
        attempt.under_way()
    assert calls.failed == ("open", f"{tmp_path}/last-run.json")
    assert _text(LastRuns.read(tmp_path)) == _text(RUNS["done"])
    attempt.under_way()
    assert _text(LastRuns.read(tmp_path)) == _text(RUNS["failed later"])


def test_the_last_success_stays_until_another_run_is_good() -> None:
    runs = RUNS["failed later"]
    assert (runs.last_run, runs.last_success) == (FAILED, DONE.kept)
    nothing = RunResult.here("nothing_to_do")
    assert runs.after(nothing) == (nothing, nothing)


def test_what_anybody_wrote_is_none_but_what_a_later_version_adds_is_read() -> None:
    values = json.loads(json.dumps(RUNS["rolled back"]._asdict(), default=asdict))
    of_later = json.loads(json.dumps(values))
    of_later["last_run"]["new"] = of_later["last_run"]["counts"]["new"] = of_later["new"] = 1
    read = LastRuns.of(json.dumps(of_later).encode())
    assert read == LastRuns.of(json.dumps(values).encode())
    assert read.last_run
    wrong: list[Any] = [
        *(
            {"started_at": "yesterday"},
            {"started_at": None},
            {"finished_at": "2026-01-01T00:00:00"},
        ),
        *({"counts": {"gone": 1}}, {"audits": [{}]}, {"rolled_back": 7}, {"newest_trace": 7}),
    ]
    contents = [values | {"last_run": values["last_run"] | each} for each in wrong]
    contents += [values | {"last_success": 7}, {"last_run": values["last_run"]}, [], 7, {}]
    for content in (b"", b"{", b"\xff", *(json.dumps(each).encode() for each in contents)):
        assert LastRuns.of(content) == LastRuns(), content


def test_of_several_results_one_ended_last() -> None:
    early = replace(DONE, finished_at="2026-01-04T02:00:00+00:00")
    assert later(None, None) is None
    for results in ((early, DONE), (DONE, None, early)):
        assert later(*results) is DONE


def test_a_try_within_another_is_that_one_and_only_the_first_end_counts(tmp_path: Path) -> None:
    def work() -> None:
        with recorded_attempt(tmp_path) as this, locked(tmp_path, wait=False):
            with recorded_attempt(tmp_path / "other") as inner:
                assert inner is this is current_attempt()
            this.under_way()
            this.at("replay")
            assert (holder(tmp_path) or {})["pid"] == os.getpid()
            this.end(DONE)
            this.finalize()
            raise WarehouseError("too late")

    with pytest.raises(WarehouseError, match="too late"):
        work()
    assert current_attempt() is None
    last, success = LastRuns.read(tmp_path)
    assert last == success
    assert last
    assert (last.status, last.step, last.run_id) == ("done", "replay", "r")
    assert last.counts == DONE.kept.counts
    assert holder(tmp_path) is None


def test_the_step_is_that_at_which_the_run_failed(tmp_path: Path) -> None:
    def work() -> None:
        with recorded_attempt(tmp_path) as this:
            this.under_way()
            this.at("replay")
            try:
                with recorded_attempt(tmp_path):
                    raise WarehouseError("damaged")
            finally:
                this.at("report")

    with pytest.raises(WarehouseError):
        work()
    last, success = LastRuns.read(tmp_path)
    assert last
    assert (last.status, last.step, success) == ("could_not_begin", "replay", None)


def test_a_run_that_fails_after_its_publication_has_failed(tmp_path: Path) -> None:
    def work() -> None:
        with recorded_attempt(tmp_path) as this:
            this.under_way()
            this.begun = True
            this.end(DONE)
            raise WarehouseError("the bucket is away")

    with pytest.raises(WarehouseError):
        work()
    last, success = LastRuns.read(tmp_path)
    assert last
    assert (last.status, last.reason, last.code) == ("failed", "the bucket is away", "warehouse")
    assert success  # it was published


def test_who_only_met_another_run_leaves_its_mark_alone(tmp_path: Path) -> None:
    RUNS["done"].write(tmp_path)
    (tmp_path / "manifest.json").touch()
    before = LastRuns.read(tmp_path)
    with pytest.raises(BusyError), recorded_attempt(tmp_path):
        raise BusyError("another run is writing")
    assert LastRuns.read(tmp_path) == before
    with pytest.raises(OvertakenError), recorded_attempt(tmp_path), locked(tmp_path, wait=False):
        raise OvertakenError("taken over")
    last, success = LastRuns.read(tmp_path)
    assert (last and last.code, success) == ("overtaken", before.last_success)
