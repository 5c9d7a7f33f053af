"""The status of a warehouse: in words, by age, and after what is done to it."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kp_batch.errors import WarehouseError
from kp_batch.operations import status
from kp_batch.operations.status import (
    WarehouseStatus,
    check_age,
    check_last_run,
    check_trace_age,
    status_text,
)
from kp_batch.warehouse.audits import AuditResult
from kp_batch.warehouse.author import current_user
from kp_batch.warehouse.last_run import LastRuns
from kp_batch.warehouse.publication import found as begin
from kp_batch.warehouse.reasons import RolledBack
from kp_batch.warehouse.run_record import RunCounts
from kp_batch.warehouse.run_result import RunResult
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import invoke
from tests.support.processes.projects import Project
from tests.support.read.folders import keep, restore

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
AGO = (NOW - timedelta(hours=1)).isoformat()
RUN = RunResult(status="running", started_at=AGO, user="me", host="here", pid=7, step="audit")
NONE = RunCounts(
    **{name: 0 for name, kind in RunCounts.__annotations__.items() if kind is int},
    rejected_by_code={},
    unreadable_files=[],
)
DONE = replace(RUN.ended("done"), finished_at=AGO, counts=NONE, run_id="r")


def status_of(last: RunResult | None = DONE, success: RunResult | None = DONE, **more: Any) -> Any:
    """A warehouse whose last run ended an hour ago."""
    values: dict[str, Any] = {"warehouse": "/wh", "is_new": False, "free_bytes": 1_500_000_000}
    values |= {"age_s": 3_600.0 if success else None, "trace_age_s": None}
    return WarehouseStatus(**values | more, last_run=last, last_success=success)


# --- in words ---


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (RUN, f"running since {AGO} in the step audit, by me on here, process 7"),
        (
            replace(RUN, user=None, step=None),
            f"running since {AGO}, on here, process 7, unless it was killed there",
        ),
        (replace(RUN, status="killed"), "killed in the step audit, begun 1.0 h ago, by me on here"),
        (DONE, "done 1.0 h ago, by me on here, run r"),
        (
            replace(DONE, status="could_not_begin", run_id=None, reason="the disk"),
            "could not begin 1.0 h ago, by me on here: the disk",
        ),
        (None, "unknown, as in a copy, or after a run of an earlier kp-batch"),
    ],
)
def test_the_last_run_in_words(last: RunResult | None, words: str) -> None:
    assert status_text(status_of(last), NOW).startswith(f"last run       {words}\n")


def test_what_is_new_in_words() -> None:
    assert status_text(status_of(None, None, is_new=True), NOW) == (
        "last run      no run was made yet\nlast success  none yet\n"
        "free          1.5 GB of the disk"
    )


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({}, "nothing"),
        ({"counts": None}, "unknown until the next run"),
        (
            {
                "counts": replace(NONE, unreadable=2, cut=1, gone=1, rejected=3),
                "audits": [
                    AuditResult(name, "warn", rows, allowed=False, first=())
                    for name, rows in (("always", 87), ("never", 0))
                ],
            },
            "2 files unreadable (1 cut), 1 file gone, 3 rows rejected, audit always: 87 rows",
        ),
        (
            {"counts": replace(NONE, excluded=1)},
            "1 file excluded with traces that stay",
        ),
    ],
)
def test_open_warnings_in_words(left: dict[str, Any], words: str) -> None:
    text = status_text(status_of(success=replace(DONE, **left)), NOW)
    assert f"\nlast success   1.0 h ago, done\nopen warnings  {words}\n" in text


def test_a_rollback_in_words() -> None:
    undone = replace(DONE, rolled_back=RolledBack("a", "b", ()))
    text = status_text(status_of(undone, undone, brings_back=("ttl 7d (line 3)",)), NOW)
    assert text.startswith("last run       rollback done 1.0 h ago")
    assert "last success   1.0 h ago, rolled back by me from run a to run b\n" in text
    assert "\nnext run       will be refused: the project would bring back what the roll" in text
    assert ", ttl 7d (line 3); change it there, or run once with --ignore-rollback\n" in text


def test_ages_in_words() -> None:
    text = status_text(status_of(age_s=-864_000.0, trace_age_s=172_800.0), NOW)
    assert "\nlast success   10.0 d in the future, done\n" in text
    assert "\nnewest trace   2.0 d old, of 2026-01-03 12:00 UTC\n" in text


# --- what fails whoever asks for it ---

LATE = "check how the last run ended, and whether the nightly job starts"
DRY = "check whether the archive still receives traces, and whether runs reject them"


@pytest.mark.parametrize(
    ("check", "age_s", "told"),
    [
        (check_age, 93_600.0, None),
        (
            check_age,
            259_200.0,
            f"the last success in /wh is 3.0 d ago, which is more than 26h; {LATE}",
        ),
        (check_age, None, f"/wh has no successful run yet; {LATE}"),
        (check_age, -300.0, None),
        (
            check_age,
            -864_000.0,
            "the last success in /wh is dated 10.0 d in the future, so its age",
        ),
        (check_trace_age, 93_600.0, None),
        (
            check_trace_age,
            259_200.0,
            f"the newest trace in /wh is 3.0 d old, which is more than 26h; {DRY}",
        ),
        (check_trace_age, None, f"/wh has no trace with a past date; {DRY}"),
        (check_trace_age, -864_000.0, "the newest trace in /wh is dated 10.0 d in the future, so"),
    ],
)
def test_what_is_too_old(check: Any, age_s: float | None, told: str | None) -> None:
    found = status_of(age_s=age_s, trace_age_s=age_s)
    check(found, None)
    if told is None:
        check(found, timedelta(hours=26))
    else:
        with pytest.raises(WarehouseError) as refused:
            check(found, timedelta(hours=26))
        assert str(refused.value).startswith(told)
        assert refused.value.code == "late"


@pytest.mark.parametrize("last", [None, RUN, DONE, replace(DONE, status="nothing_to_do")])
def test_a_last_run_that_is_good_or_not_over_fails_nobody(last: RunResult | None) -> None:
    check_last_run(status_of(last))


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (
            "could_not_begin",
            "did not succeed (could not begin): the disk; fix that, and run",
        ),
        *(
            (each, f"did not succeed ({each}): the disk; fix that, and run again")
            for each in ("refused", "failed", "stopped")
        ),
        ("killed", "did not succeed (killed): the disk; "),
    ],
)
def test_a_last_run_that_did_not_succeed_is_refused(status: Any, told: str) -> None:
    with pytest.raises(WarehouseError) as refused:
        check_last_run(status_of(replace(DONE, status=status, reason="the disk")))
    assert str(refused.value).startswith(f"the last run in /wh {told}")


# --- of a folder ---


def test_what_is_no_warehouse_has_no_status(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name, reason in {
        "gone": "cannot be reached: there is no such folder; check its path and its disk",
        "file": "cannot be reached: there is no such folder; check its path and its disk",
        "empty": "is not a warehouse; run an archive first",
    }.items():
        refused = invoke("status", "--warehouse", tmp_path / name, "--max-age", "26h")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == f"kp-batch: {tmp_path / name} {reason}\n"
    assert [*(tmp_path / "empty").iterdir()] == []


def test_a_run_that_cannot_begin_leaves_nothing_where_no_warehouse_is(tmp_path: Path) -> None:
    invoke("run", "a", "--warehouse", tmp_path, "--no-prefect", "--ttl", "soon")
    assert [*tmp_path.iterdir()] == []


@pytest.fixture
def begun(tmp_path: Path) -> Project:
    """A warehouse that init has made, before its first run."""
    begin(tmp_path / "warehouse")
    (tmp_path / "kp_batch.toml").write_text('warehouse = "warehouse"\n')
    return Project(tmp_path)


def test_before_its_first_run_a_warehouse_is_new(begun: Project) -> None:
    found = begun.status()
    assert (found["is_new"], found["last_run"], found["age_s"]) == (True, None, None)
    begun.status("--max-age", "26h", exits=1)


def test_each_bound_fails_whoever_asks_for_it_alone(begun: Project) -> None:
    old = (datetime.now(UTC) - timedelta(days=3)).isoformat()
    done = replace(DONE, finished_at=old, newest_trace=old)
    LastRuns().after(done).after(replace(RUN, status="failed")).write(begun.tables)
    assert round(begun.status()["age_s"] / 86_400) == 3
    for bound in (("--max-age", "4d"), ("--max-trace-age", "4d")):
        begun.status(*bound)
    for bound in (("--max-age", "26h"), ("--max-trace-age", "26h"), ("--fail-if-failed",)):
        begun.status(*bound, exits=1)


def test_a_run_is_under_way_only_while_its_process_writes(
    begun: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    LastRuns().after(RUN).write(begun.tables)
    assert begun.status()["last_run"]["status"] == "killed"
    looked: list[Path] = []

    def holder(warehouse: Path) -> None:  # it lets the lock go before it says how it ended
        looked.append(warehouse)
        if len(looked) == 2:
            LastRuns().after(DONE).write(begun.tables)

    monkeypatch.setattr(status, "holder", holder)
    assert begun.status()["last_run"]["status"] == "done"


# --- after what is done to it ---


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("status") / "project")
    project.write("a", good=20)
    project.write("b", good=20)
    project.make()
    keep(project.folder)
    return project


@pytest.fixture
def project(made: Project) -> Project:
    restore(made.folder)
    return made


@pytest.mark.slow
def test_a_first_night_that_fails_is_no_success(tmp_path: Path) -> None:
    first = Project(tmp_path)
    first.write("a", good=1, bad=3)
    first.file.write_text('archive = "archive"\nwarehouse = "warehouse"\n')
    assert first.night("--embedder", "none").how == (1, "refused", "max_reject_share")
    found = first.status("--max-age", "26h", exits=1)
    assert (found["last_success"], found["is_new"]) == (None, False)
    assert first.status()["last_run"]["status"] == "refused"


@pytest.mark.slow
def test_tables_that_are_lost_are_named(project: Project) -> None:
    shutil.rmtree(project.tables / "scores")
    lost = project.command("status", "--max-age", "26h")
    assert (lost.returncode, lost.stdout) == (1, "")
    assert lost.stderr == (
        "kp-batch: the table scores is gone from warehouse; restore it from a copy, or "
        "run the archive into a new folder\n"
    )
    shutil.rmtree(project.tables / "runs")
    assert "the tables scores, runs are gone from " in project.command("status").stderr


@pytest.mark.slow
def test_a_night_with_nothing_to_do_reports_excluded_files(project: Project) -> None:
    excluding = ("--exclude", "b.jsonl")
    assert project.night(*excluding).how == (0, "done", None)
    again = project.command("run", "--no-prefect", "--no-report", *excluding)
    assert "are up to date; 1 file excluded with traces that stay" in again.stdout


@pytest.mark.slow
def test_forget_removes_its_rows_from_status_and_is_not_the_last_run(project: Project) -> None:
    project.write("c", good=47, bad=3)
    project.night("--max-new-rejects", 3)
    before = project.status()
    assert project.command("forget", "c-bad-0").returncode == 0
    found = project.status()
    assert found["last_run"] == before["last_run"]
    assert found["last_success"]["counts"]["rejected"] == 2
    for success in (found["last_success"], before["last_success"]):
        success["counts"] = {}
    assert found["last_success"] == before["last_success"]


@pytest.mark.slow
@pytest.mark.telling
def test_after_a_rollback_status_counts_what_is_published(project: Project) -> None:
    scores, first = project.scores(), project.status()["last_run"]["run_id"]
    project.write("c", good=47, bad=3)
    night = project.night("--max-new-rejects", 3)
    assert project.status()["last_success"]["counts"]["rejected"] == 3
    assert project.command("rollback", "previous").returncode == 0
    assert project.scores() == scores
    found = project.status("--max-age", "26h")
    last, success = found["last_run"], found["last_success"]
    assert (last["status"], success["user"]) == ("done", current_user())
    assert last["run_id"] == success["run_id"] not in {first, night.printed["run_id"]}
    assert success["counts"]["rejected"] == 0
    undone = success["rolled_back"]
    assert (undone["from_run"], undone["to_run"]) == (night.printed["run_id"], first)
    (project.tables / "last-run.json").unlink()  # as in a copy: unknown, until a run has looked
    found = project.status("--max-age", "26h", "--fail-if-failed")
    assert (found["is_new"], found["last_run"]) == (False, None)
    of_copy = success | {"counts": None}
    for name in ("status", "run_id", "user", "rolled_back", "counts"):
        assert found["last_success"][name] == of_copy[name]
    project.night("--max-new-rejects", 3)
    assert project.status()["last_success"]["counts"]["rejected"] == 3


@pytest.mark.slow
def test_what_a_rollback_undid_stays_undone_though_the_file_has_it(project: Project) -> None:
    project.change("# cache_size = 1000", "cache_size = 2")
    assert project.night().err == "kp-batch: settings changed: cache size 1000 to 2\n"
    project.command("rollback", "previous")
    line = project.file.read_text("utf-8").split("\n").index("cache_size = 2") + 1
    for trace_id in ("none", "a-00"):
        project.command("forget", trace_id)  # which brings nothing back
        assert project.status()["brings_back"] == [f"cache_size 2 (line {line})"]
        before, night = project.scores(), project.night()
        assert night.how == (1, "refused", "rolled_back")
        for words in (f"cache_size 2 (line {line}); change it there, or", "--ignore-rollback"):
            assert words in night.err
        assert project.last_run() == ("refused", "rolled_back")
        assert project.scores() == before


@pytest.mark.slow
@pytest.mark.telling
def test_the_newest_trace_is_no_future_one(project: Project) -> None:
    now = datetime.now(UTC)
    days = {"old": 5, "new": 2, "soon": -0.01, "far": -9_999}
    times = {name: now - timedelta(days=count) for name, count in days.items()}
    dated = [trace(id=name, created_at=time.isoformat()) for name, time in times.items()]
    write_jsonl(project.archive / "c.jsonl", dated)
    project.night()
    for _ in range(2):
        found = project.status("--max-trace-age", "3d")
        assert datetime.fromisoformat(found["last_success"]["newest_trace"]) == times["new"]
        assert round(found["trace_age_s"] / 86_400, 2) == 2
        assert project.night().how == (0, "nothing_to_do", None)
    mark = project.tables / "last-run.json"
    mark.write_text(mark.read_text().replace('"newest_trace"', '"unknown"'))  # of before
    assert round(project.status()["trace_age_s"] / 86_400, 2) == 2
    assert project.command("forget", "new").returncode == 0
    assert round(project.status()["trace_age_s"] / 86_400) == 5


@pytest.mark.slow
def test_of_traces_that_are_all_of_the_future_none_is_the_newest(tmp_path: Path) -> None:
    future = Project(tmp_path)
    write_jsonl(future.archive / "a.jsonl", [trace(id="a", created_at="2999-01-01T00:00:00Z")])
    future.file.write_text('archive = "archive"\nwarehouse = "warehouse"\n')
    future.night("--embedder", "none")
    assert future.status("--max-trace-age", "3d", exits=1)["trace_age_s"] is None
