"""The file that says how the last run ended: who reads it, and what anybody may have written."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kp_batch.ended import Ended
from kp_batch.errors import BusyError, OvertakenError, WarehouseError
from kp_batch.warehouse.audits import AuditResult
from kp_batch.warehouse.last_run import LastRun, Stands, Success, last_success, the_try, tried
from kp_batch.warehouse.lock import holder, locked
from kp_batch.warehouse.reasons import Reason, RolledBack

AT = "2026-01-05T02:15:00+00:00"
STANDS = Stands(2, cut=1, gone=0, rejected=3, audits={"always": 7}, newest_trace=AT)
MARK = LastRun("done", AT, "kp", "host", 7, "0.1.0", ended=AT, run_id="r", step="publish")
MARK_OF_SUCCESS = LastRun(**{**vars(MARK), "success": Success(AT, "done", "r", STANDS)})
UNDONE = RolledBack("a", "b", "kp", (Reason("weights", "0.2 to 0.3", {"novelty": 0.3}, of="code"),))
MARK_OF_ROLLBACK = replace(MARK, success=Success(AT, "done", "r", STANDS, UNDONE))


@pytest.mark.parametrize("mark", [MARK, MARK_OF_SUCCESS, MARK_OF_ROLLBACK], ids=range(3))
def test_what_is_written_is_read(tmp_path: Path, mark: LastRun) -> None:
    assert LastRun.read(tmp_path) is None
    mark.write(tmp_path)
    assert LastRun.read(tmp_path) == mark
    assert [path.name for path in tmp_path.iterdir()] == ["last-run.json"]


def _wrong_rollbacks() -> list[Any]:
    [reason], values = map(asdict, UNDONE.undone), asdict(UNDONE)
    wrong = [{"undone": [reason | {"code": 7}]}, {"undone": [7]}, {"undone": 7}, {"user": 7}]
    return [7, {}, *(values | each for each in wrong)]


def test_what_anybody_wrote_is_no_mark_but_what_a_later_version_adds_is() -> None:
    values = asdict(MARK_OF_SUCCESS)
    content = json.dumps(values).encode()
    assert LastRun.of(json.dumps({**values, "new": 1}).encode()) == LastRun.of(content)
    wrong: list[dict[str, Any]] = [
        *({name: 7} for name in ("status", "began", "host", "reason", "success")),
        *({"pid": "7"}, {"ended": "yesterday"}, {"began": "2026-01-01T00:00:00"}),
        {"success": values["success"] | {"stands": {"gone": 1}}},
        {"success": values["success"] | {"stands": asdict(STANDS) | {"newest_trace": "now"}}},
        {"success": values["success"] | {"ended": None}},
        *(
            {"success": values["success"] | {"rolled_back": undone}}
            for undone in _wrong_rollbacks()
        ),
    ]
    contents = [json.dumps({**values, **each}).encode() for each in wrong]
    for each in (b"", b"{", b"[]", b"7", b"{}", b"\xff", content[:-20], *contents):
        assert LastRun.of(each) is None, each


def test_the_last_success_is_the_later_one() -> None:
    early = LastRun(**{**vars(MARK), "success": Success("2026-01-04T02:00", "done", "e", STANDS)})
    assert last_success(None, MARK) is None
    for tries in ((early, MARK_OF_SUCCESS), (MARK_OF_SUCCESS, None, early)):
        assert last_success(*tries) == MARK_OF_SUCCESS.success


def test_a_try_within_another_is_that_one_and_only_the_first_end_counts(tmp_path: Path) -> None:
    def work() -> None:
        with tried(tmp_path) as this, locked(tmp_path, wait=False):
            with tried(tmp_path / "other") as inner:
                assert inner is this is the_try()
            this.under_way()
            this.at("replay")
            assert (holder(tmp_path) or {})["pid"] == os.getpid()
            this.end(Ended("done"), STANDS)
            this.settle()
            raise WarehouseError("too late")

    with pytest.raises(WarehouseError, match="too late"):
        work()
    assert the_try() is None
    mark = LastRun.read(tmp_path)
    assert mark
    assert (mark.status, mark.step) == ("done", "replay")
    assert mark.success
    assert mark.success.stands == STANDS
    assert holder(tmp_path) is None


def test_the_step_is_that_at_which_the_run_failed(tmp_path: Path) -> None:
    def work() -> None:
        with tried(tmp_path) as this:
            this.under_way()
            this.at("replay")
            try:
                with tried(tmp_path):
                    raise WarehouseError("damaged")
            finally:
                this.at("report")

    with pytest.raises(WarehouseError):
        work()
    mark = LastRun.read(tmp_path)
    assert mark
    assert (mark.status, mark.step) == ("could_not_begin", "replay")


def test_a_run_that_fails_after_its_publication_has_failed(tmp_path: Path) -> None:
    def work() -> None:
        with tried(tmp_path) as this:
            this.under_way()
            this.begun = True
            this.end(Ended("done"), STANDS)
            raise WarehouseError("the bucket is away")

    with pytest.raises(WarehouseError):
        work()
    mark = LastRun.read(tmp_path)
    assert mark
    assert (mark.status, mark.reason, mark.code) == ("failed", "the bucket is away", "warehouse")
    assert mark.success  # it was published


def test_who_only_met_another_run_leaves_its_mark_alone(tmp_path: Path) -> None:
    MARK.write(tmp_path)
    (tmp_path / "manifest.json").touch()
    with pytest.raises(BusyError), tried(tmp_path):
        raise BusyError("another run is writing")
    assert LastRun.read(tmp_path) == MARK
    with pytest.raises(OvertakenError), tried(tmp_path), locked(tmp_path, wait=False):
        raise OvertakenError("taken over")
    mark = LastRun.read(tmp_path)
    assert (mark and mark.code) == "overtaken"


def test_what_stands_has_the_audits_that_find_rows() -> None:
    results = [
        AuditResult("a", "warn", 0, allowed=False),
        AuditResult("b", "warn", 3, allowed=True),
    ]
    numbers = {"unreadable": 2, "cut": 1, "gone": 0, "rejected": 3, "excluded": 4}
    counts: Any = type("Counts", (), numbers)
    assert Stands.of(counts, results) == Stands(2, 1, 0, 3, {"b": 3}, 4)
