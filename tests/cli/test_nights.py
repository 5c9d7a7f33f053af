"""Troubled nights: what each comes to, by exit status, `run --json`, the mark and `status`."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kp_batch.operations import status
from kp_batch.pipeline import rescore
from kp_batch.warehouse import publication
from kp_batch.warehouse.author import current_user
from kp_batch.warehouse.last_run import LastRuns
from kp_batch.warehouse.publication import found as begin
from kp_batch.warehouse.run_result import GOOD
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import invoke, is_running, linux, until, working
from tests.support.read.folders import contents, keep, restore
from tests.support.read.schemas import schema_of

pytestmark = pytest.mark.slow

LONG_AUDIT = """
[audits.long]
sql = "SELECT 1 FROM range(1000000000) a, range(1000000000) b WHERE hash(a.range, b.range) = 1"
"""
DAY = ("--max-age", "26h")
AUDIT = "[audits.always]\nsql = 'SELECT trace_id FROM scores'\nseverity = '{}'\n"


def rows(name: str, good: int, bad: int = 0) -> list[dict[str, Any]]:
    faulty = [trace(id=f"{name}-bad-{number}", steps=[]) for number in range(bad)]
    return [*(trace(id=f"{name}-{number:02d}") for number in range(good)), *faulty]


class NightlyCommand:
    """An archive, and its warehouse after one good night."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.archive = folder, folder / "archive"
        self.warehouse = folder / "warehouse"

    def words(self, *options: object) -> list[object]:
        places = [self.archive, "--warehouse", self.warehouse, "--embedder", "none"]
        return ["run", *places, "--no-prefect", "--json", "--quiet", *options]

    def night(self, *options: object) -> tuple[int, str, str | None]:
        """The exit status of a run, how it ended, and the code, of which all tell the same."""
        done = invoke(*self.words(*options))
        return self.told(done.returncode, done.stdout, done.stderr)

    def told(self, status: int, out: str, err: str) -> tuple[int, str, str | None]:
        [ending] = map(json.loads, out.splitlines())
        Draft202012Validator(schema_of("run")).validate(ending)
        mark = LastRuns.read(self.warehouse).last_run
        assert mark
        if ending["code"] != "busy":
            of_mark = (mark.status, mark.reason, mark.code, mark.run_id)
            assert of_mark == tuple(ending[name] for name in ("status", "reason", "code", "run_id"))
        if ending["reason"]:
            assert ending["reason"] in err.splitlines()[-1]
        else:
            assert err == ""
        return status, ending["status"], ending["code"]

    def status(self, *options: object) -> tuple[int, dict[str, Any]]:
        """What `status` says, without a change of the warehouse."""
        before = contents(self.warehouse)
        found = self.status_meanwhile(*options)
        assert contents(self.warehouse) == before
        return found

    def status_meanwhile(self, *options: object) -> tuple[int, dict[str, Any]]:
        done = invoke("status", "--warehouse", self.warehouse, "--json", *options)
        found = json.loads(done.stdout)
        Draft202012Validator(schema_of("status")).validate(found)
        return done.returncode, found

    def text(self) -> str:
        return invoke("status", "--warehouse", self.warehouse).stdout


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> NightlyCommand:
    nights = NightlyCommand(tmp_path_factory.mktemp("nights") / "night")
    for name in "ab":
        write_jsonl(nights.archive / f"{name}.jsonl", rows(name, 20))
    assert invoke(*nights.words()).returncode == 0
    keep(nights.folder)
    return nights


@pytest.fixture
def nights(kept: NightlyCommand) -> NightlyCommand:
    restore(kept.folder)
    return kept


def add(nights: NightlyCommand) -> None:
    write_jsonl(nights.archive / "c.jsonl", rows("c", 3))


def reject(nights: NightlyCommand) -> None:
    write_jsonl(nights.archive / "c.jsonl", rows("c", 47, bad=3))


def lose_file(nights: NightlyCommand) -> None:
    (nights.archive / "b.jsonl").unlink()


def lose_traces(nights: NightlyCommand) -> None:
    write_jsonl(nights.archive / "b.jsonl", rows("b", 5))


def lose_archive(nights: NightlyCommand) -> None:
    nights.archive.rename(nights.folder / "away")


def write_audit(nights: NightlyCommand, severity: str = "error") -> None:
    (nights.folder / "audits.toml").write_text(AUDIT.format(severity))


def write_weights(nights: NightlyCommand) -> None:
    weights = "complexity = 0.3\nnovelty = 0.2\ntool_diversity = 0.2\noutcome_confidence = 0.2\n"
    (nights.folder / "weights.toml").write_text(f"[profiles.code]\n{weights}")


def do_nothing(_: NightlyCommand) -> None:
    pass


@pytest.mark.parametrize(
    ("trouble", "options", "exits", "how", "code"),
    [
        (do_nothing, [], 0, "nothing_to_do", None),
        pytest.param(add, [], 0, "done", None, marks=pytest.mark.telling),
        pytest.param(
            lose_archive, [], 1, "could_not_begin", "no_archive", marks=pytest.mark.telling
        ),
        (lose_file, ["--max-gone", 0], 1, "refused", "max_gone"),
        pytest.param(lose_traces, [], 1, "refused", "max_removed", marks=pytest.mark.telling),
        (reject, ["--max-new-rejects", 0], 1, "refused", "max_new_rejects"),
        (do_nothing, ["--embedder", "/no/model"], 1, "could_not_begin", "encoder"),
        (write_weights, ["--profiles", "weights.toml"], 1, "refused", "weights"),
        (do_nothing, ["--ttl", "soon"], 2, "refused", "settings"),
        (write_audit, ["--audits", "audits.toml"], 1, "refused", "audit"),
    ],
)
def test_how_a_night_ends(  # noqa: PLR0913, PLR0917 (a row of the table)
    nights: NightlyCommand,
    trouble: Callable[[NightlyCommand], None],
    options: list[object],
    exits: int,
    how: str,
    code: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trouble(nights)
    monkeypatch.chdir(nights.folder)
    before = LastRuns.read(nights.warehouse).last_success
    assert before
    assert nights.night(*options) == (exits, how, code)
    returned, found = nights.status(*DAY)
    assert returned == 0
    assert (found["last_run"]["status"], found["last_run"]["code"]) == (how, code)
    assert nights.status("--fail-if-failed")[0] == (0 if how in GOOD else 1)
    assert found["last_run"]["finished_at"] >= found["last_run"]["started_at"]
    assert found["age_s"] < 3_600
    assert found["free_bytes"] > 0
    if exits:
        assert found["last_success"] == json.loads(json.dumps(before, default=vars))
    else:
        assert found["last_success"]["status"] == how


def standing(nights: NightlyCommand) -> dict[str, Any]:
    """What stands since the last success."""
    success = nights.status()[1]["last_success"]
    names = ("unreadable", "cut", "gone", "rejected", "excluded")
    audits = {each["name"]: each["rows"] for each in success["audits"] if each["rows"]}
    numbers = {name: success["counts"][name] for name in names}
    return numbers | {"audits": audits, "newest_trace": success["newest_trace"]}


def test_what_stands_after_a_good_night_is_unknown_after_a_restore_until_a_run_has_looked(
    nights: NightlyCommand,
) -> None:
    write_audit(nights, "warn")
    (nights.archive / "cut.jsonl").write_bytes(b'{"id":"x"')
    (nights.archive / "odd.parquet").write_bytes(b"odd")
    lose_file(nights)
    reject(nights)
    options = ("--audits", nights.folder / "audits.toml", "--max-reject-share", 1)
    invoke(*nights.words(*options))
    numbers = {"unreadable": 2, "cut": 1, "gone": 1, "rejected": 3, "excluded": 0}
    stands = numbers | {"audits": {"always": 87}, "newest_trace": "2026-01-05T08:00:00+00:00"}
    assert standing(nights) == stands
    invoke(*nights.words())  # with nothing to do
    assert standing(nights) == stands
    assert "2 files unreadable (1 cut), 1 file gone, 3 rows rejected, audit always: 87 rows" in (
        nights.text()
    )
    Path(nights.warehouse / "last-run.json").unlink()  # as after a restore
    returned, found = nights.status(*DAY)
    assert (returned, found["is_new"], found["last_run"]) == (0, False, None)
    assert found["last_success"]["counts"] is None
    assert "what stands   unknown, until a run has looked" in nights.text()
    nights.night()
    assert standing(nights) == stands


def test_what_is_excluded_is_not_gone(nights: NightlyCommand) -> None:
    excluding = ("--exclude", "b.jsonl", "--max-gone", 0)
    assert nights.night(*excluding) == (0, "done", None)
    stands = standing(nights)
    assert (stands["gone"], stands["excluded"]) == (0, 1)
    assert "what stands   1 file excluded with traces that stay" in nights.text()
    again = invoke("run", "--warehouse", nights.warehouse, "--no-prefect", *excluding)
    assert "they have to be; 1 file excluded with traces that stay" in again.stdout
    invoke(*nights.words(*excluding, "--prune"))
    assert standing(nights)["excluded"] == 0


@pytest.mark.telling
def test_a_disk_that_is_full_at_the_first_byte_in_the_middle_or_at_the_manifest(
    nights: NightlyCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    add(nights)
    for module, name in ((rescore, "write_tables"), (publication, "check_readable")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fail)
            assert nights.night() == (1, "failed", "disk_full")
    with monkeypatch.context() as patch:
        patch.setattr("kp_batch.warehouse.layout._NEEDED_BYTES", 1 << 60)
        assert nights.night() == (1, "failed", "disk_full")
    returned, found = nights.status(*DAY)
    assert (returned, found["last_run"]["status"]) == (0, "failed")


@pytest.mark.slow
def test_a_failure_that_cannot_be_recorded_is_a_warning(
    nights: NightlyCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "runs")

    reject(nights)
    monkeypatch.setattr(rescore, "publish_failure", deny)
    done = invoke(*nights.words("--max-new-rejects", 0))
    assert done.returncode == 1
    mark = LastRuns.read(nights.warehouse).last_run
    assert mark
    assert mark.reason == json.loads(done.stdout)["reason"]
    assert mark.run_id is None
    warning, error = done.stderr.splitlines()
    assert warning.startswith("kp-batch: warning: this run has no row in runs: ")
    assert "Permission denied" in warning
    assert error == f"kp-batch: {mark.reason}"


def test_on_a_full_disk_the_mark_takes_the_room_that_it_has(
    nights: NightlyCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kp_batch.files.temporary_sibling", fail)
    assert nights.night("--ttl", "soon") == (2, "refused", "settings")
    size = (nights.warehouse / "last-run.json").stat().st_size
    monkeypatch.undo()
    LastRuns.read(nights.warehouse).write(nights.warehouse)
    assert (nights.warehouse / "last-run.json").stat().st_size == size


@pytest.mark.telling
def test_no_night_for_three_days(nights: NightlyCommand) -> None:
    path = nights.warehouse / "last-run.json"
    mark = json.loads(path.read_text())
    long_ago = (datetime.now(UTC) - timedelta(days=3)).isoformat(timespec="seconds")
    mark["last_success"]["finished_at"] = long_ago
    path.write_text(json.dumps(mark))
    assert nights.status()[0] == 0
    returned, found = nights.status(*DAY)
    assert (returned, round(found["age_s"] / 86_400)) == (1, 3)
    late = invoke("status", "--warehouse", nights.warehouse, *DAY)
    assert late.stderr == (
        f"kp-batch: the last success in {nights.warehouse} is 3.0 d ago, which is more than 26h; "
        "see how the last run ended, and whether the nightly job is started\n"
    )


@pytest.mark.telling
def test_after_a_rollback_what_stands_is_of_what_is_published(nights: NightlyCommand) -> None:
    mark = LastRuns.read(nights.warehouse).last_run
    reject(nights)
    assert nights.night() == (0, "done", None)
    undone = nights.status()[1]
    assert undone["last_success"]["counts"]["rejected"] == 3
    assert invoke("rollback", "previous", "--warehouse", nights.warehouse).returncode == 0
    returned, found = nights.status(*DAY)
    last, success = found["last_run"], found["last_success"]
    assert (returned, last["status"]) == (0, "done")
    assert last["run_id"] == success["run_id"] != undone["last_run"]["run_id"]
    assert success["counts"]["rejected"] == 0
    runs = {"from_run": undone["last_run"]["run_id"], "to_run": mark and mark.run_id}
    assert success["rolled_back"] == runs | {"undone": []}
    text = nights.text()
    assert text.startswith("last run      rollback done ")
    assert (
        "rolled back by {user} from run {from_run} to run {to_run}\nwhat stands   nothing".format(
            user=current_user(), **success["rolled_back"]
        )
        in text
    )
    Path(nights.warehouse / "last-run.json").unlink()  # as in a copy
    of_copy = nights.status()[1]["last_success"]
    for name in ("status", "run_id", "user", "rolled_back"):
        assert of_copy[name] == success[name]
    assert of_copy["counts"] is None


def test_what_a_forget_removes_stands_no_more_and_is_no_night(nights: NightlyCommand) -> None:
    reject(nights)
    assert nights.night("--max-reject-share", 1) == (0, "done", None)
    before = nights.status()[1]
    assert invoke("forget", "c-bad-0", "--warehouse", nights.warehouse).returncode == 0
    found = nights.status()[1]
    assert found["last_run"] == before["last_run"]
    assert found["last_success"]["counts"]["rejected"] == 2
    for success in (found["last_success"], before["last_success"]):
        success["counts"] = {}
    assert found["last_success"] == before["last_success"]


@pytest.mark.telling
def test_an_age_below_zero_is_no_age(nights: NightlyCommand) -> None:
    """As after a run whose clock was a year ahead, until another one is done."""
    mark = nights.warehouse / "last-run.json"
    written = json.loads(mark.read_text())
    ahead = (datetime.now(UTC) + timedelta(days=365)).isoformat()
    written["last_success"] |= {"finished_at": ahead, "newest_trace": ahead}
    mark.write_text(json.dumps(written))
    for option, what in (
        ("--max-age", "the last success"),
        ("--max-trace-age", "the newest trace"),
    ):
        late = invoke("status", "--warehouse", nights.warehouse, option, "26h")
        told = f"kp-batch: {what} in {nights.warehouse} is dated 365.0 d in the future, so its age "
        assert (late.returncode, late.stderr[: len(told)]) == (1, told)
    assert "last success  365.0 d in the future, done" in nights.text()
    nights.night()
    assert nights.status(*DAY)[0] == 0


def test_other_upkeep_leaves_the_status(nights: NightlyCommand) -> None:
    before = nights.status()[1]
    invoke("vacuum", "--warehouse", nights.warehouse)
    found = nights.status()[1]
    assert (found["last_run"], found["last_success"]) == (
        before["last_run"],
        before["last_success"],
    )


@pytest.mark.parametrize(
    ("status", "told"),
    [("failed", "(failed): the disk; once"), ("could_not_begin", "(could not begin): the disk; ")],
)
def test_a_last_run_that_did_not_succeed_fails_the_status_that_asks(
    nights: NightlyCommand, status: str, told: str
) -> None:
    mark = nights.warehouse / "last-run.json"
    values = json.loads(mark.read_text())
    values["last_run"] |= {"status": status, "reason": "the disk"}
    mark.write_text(json.dumps(values))
    asked = invoke("status", "--warehouse", nights.warehouse, "--fail-if-failed")
    assert asked.returncode == 1
    assert asked.stdout.startswith("last run  ")
    message = f"kp-batch: the last run in {nights.warehouse} did not succeed {told}"
    assert asked.stderr.startswith(message)
    values["last_run"]["status"] = "running"
    mark.write_text(json.dumps(values))
    assert nights.status("--fail-if-failed")[0] == 1  # its process is gone: it was killed
    mark.unlink()  # as in a copy, whose tables have the last success
    assert nights.status("--fail-if-failed")[0] == 0


@pytest.mark.telling
def test_traces_that_stopped_coming_are_told_by_the_newest_that_is_no_future_one(
    nights: NightlyCommand,
) -> None:
    now = datetime.now(UTC)
    days = {"old": 5, "new": 2, "soon": -0.01, "far": -9_999}
    times = {name: now - timedelta(days=count) for name, count in days.items()}
    dated = [trace(id=name, created_at=time.isoformat()) for name, time in times.items()]
    write_jsonl(nights.archive / "c.jsonl", dated)
    invoke(*nights.words())
    assert nights.night() == (0, "nothing_to_do", None)
    returned, found = nights.status(*DAY, "--max-trace-age", "3d")
    newest = found["last_success"]["newest_trace"]
    assert (returned, datetime.fromisoformat(newest)) == (0, times["new"])
    assert round(found["trace_age_s"] / 86_400, 2) == 2
    assert f"newest trace  2.0 d old, of {times['new']:%Y-%m-%d %H:%M} UTC\n" in nights.text()
    assert nights.status(*DAY, "--max-trace-age", "1d")[0] == 1
    late = invoke("status", "--warehouse", nights.warehouse, "--max-trace-age", "1d")
    assert late.stderr == (
        f"kp-batch: the newest trace in {nights.warehouse} is 2.0 d old, which is more than 1d; "
        "look whether traces still come into the archive, and whether a run refuses them\n"
    )
    mark = nights.warehouse / "last-run.json"
    mark.write_text(mark.read_text().replace('"newest_trace"', '"unknown"'))  # of before
    assert round(nights.status()[1]["trace_age_s"] / 86_400, 2) == 2
    assert invoke("forget", "new", "--warehouse", nights.warehouse).returncode == 0
    assert round(nights.status()[1]["trace_age_s"] / 86_400) == 5


def test_a_warehouse_whose_traces_are_all_of_the_future_has_no_newest(tmp_path: Path) -> None:
    nights = NightlyCommand(tmp_path)
    write_jsonl(nights.archive / "a.jsonl", [trace(id="a", created_at="2999-01-01T00:00:00Z")])
    invoke(*nights.words())
    returned, found = nights.status("--max-trace-age", "3d")
    assert (returned, found["trace_age_s"]) == (1, None)
    assert "newest" not in nights.text()
    late = invoke("status", "--warehouse", nights.warehouse, "--max-trace-age", "3d")
    assert late.stderr.startswith(
        f"kp-batch: no trace is known in {nights.warehouse} that is not dated in the future; "
    )


def test_a_warehouse_that_has_lost_tables_is_told_with_their_names(nights: NightlyCommand) -> None:
    shutil.rmtree(nights.warehouse / "scores")
    lost = invoke("status", "--warehouse", nights.warehouse, *DAY)
    assert (lost.returncode, lost.stdout) == (1, "")
    assert lost.stderr == (
        f"kp-batch: the table scores is gone from {nights.warehouse}; restore it from a copy, or "
        "run the archive into a new folder\n"
    )
    shutil.rmtree(nights.warehouse / "runs")
    lost = invoke("status", "--warehouse", nights.warehouse)
    assert lost.stderr.startswith("kp-batch: the tables scores, runs are gone from ")


def test_before_its_first_run_a_warehouse_is_new(tmp_path: Path) -> None:
    nights = NightlyCommand(tmp_path)
    begin(nights.warehouse)
    returned, of_new = nights.status()
    assert (returned, of_new["is_new"], of_new["last_run"]) == (0, True, None)
    assert nights.text().startswith("last run      no run was made yet\nlast success  none yet\n")
    assert nights.status(*DAY)[0] == 1


def test_a_first_night_that_fails_is_no_success(tmp_path: Path) -> None:
    nights = NightlyCommand(tmp_path)
    write_jsonl(nights.archive / "a.jsonl", rows("a", 1, bad=3))
    assert nights.night() == (1, "refused", "max_reject_share")
    assert nights.status()[0] == 0
    returned, found = nights.status(*DAY)
    assert (returned, found["last_success"], found["age_s"]) == (1, None, None)
    late = invoke("status", "--warehouse", nights.warehouse, *DAY)
    assert late.stderr == (
        f"kp-batch: no run was done in {nights.warehouse} yet; see how the last run ended, and "
        "whether the nightly job is started\n"
    )


@contextmanager
def auditing(nights: NightlyCommand) -> Generator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A night at a step that lasts for hours, and what `status` says of it."""
    (nights.folder / "audits.toml").write_text(LONG_AUDIT)
    with working(*nights.words("--audits", nights.folder / "audits.toml")) as process:
        until(lambda: (run := LastRuns.read(nights.warehouse).last_run) and run.step == "audit", 60)
        yield process, nights.status_meanwhile(*DAY)[1]["last_run"]


@linux
@pytest.mark.telling
@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_night_under_way_that_is_stopped_or_killed(
    nights: NightlyCommand, number: signal.Signals
) -> None:
    with auditing(nights) as (process, running):
        assert (running["status"], running["finished_at"]) == ("running", None)
        assert nights.night() == (1, "could_not_begin", "busy")
        assert nights.status_meanwhile()[1]["last_run"] == running
        assert f"running since {running['started_at']} in the step audit, by" in nights.text()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    until(lambda: not is_running(running["pid"]), 20)
    if number == signal.SIGKILL:
        assert (process.returncode, out) == (-9, "")
        returned, found = nights.status(*DAY)
        assert (returned, found["last_run"]) == (0, running | {"status": "killed"})
        assert "killed in the step audit, begun" in nights.text()
    else:
        told = nights.told(process.returncode, out, err)
        assert told == (128 + number, "stopped", "signal")
        assert f"ended by {number.name} in the step audit; what is published is whole" in err
        assert nights.status(*DAY)[1]["last_run"]["status"] == "stopped"
    assert nights.night() == (0, "nothing_to_do", None)


@linux
@pytest.mark.telling
@pytest.mark.process
def test_a_working_process_that_the_system_kills_fails_the_night(nights: NightlyCommand) -> None:
    with auditing(nights) as (process, running):
        os.kill(running["pid"], signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert nights.told(process.returncode, out, err) == (137, "failed", "killed")


def test_a_night_that_has_just_let_the_lock_go_was_not_killed(
    nights: NightlyCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = LastRuns.read(nights.warehouse)
    assert ended.last_run
    ended._replace(last_run=replace(ended.last_run, status="running")).write(nights.warehouse)
    looked: list[Path] = []

    def holder(warehouse: Path) -> None:
        looked.append(warehouse)
        if len(looked) == 2:
            ended.write(warehouse)

    monkeypatch.setattr(status, "holder", holder)
    assert nights.status_meanwhile()[1]["last_run"]["status"] == "done"


def test_a_preview_and_a_plan_are_no_runs(nights: NightlyCommand) -> None:
    add(nights)
    before = LastRuns.read(nights.warehouse)
    invoke(*nights.words("--preview"))
    invoke(*nights.words("--preview", "--ttl", "soon"))
    invoke("plan", nights.archive, "--warehouse", nights.warehouse)
    assert LastRuns.read(nights.warehouse) == before


def test_what_is_no_warehouse_has_no_status(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name, reason in {
        "gone": "cannot be reached: there is no such folder; look at its path and its disk",
        "file": "cannot be reached: there is no such folder; look at its path and its disk",
        "empty": "is no warehouse; run an archive first",
    }.items():
        refused = invoke("status", "--warehouse", tmp_path / name, *DAY)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == f"kp-batch: {tmp_path / name} {reason}\n"
    assert [*(tmp_path / "empty").iterdir()] == []


def test_a_run_of_no_warehouse_yet_leaves_nothing_where_it_could_not_begin(tmp_path: Path) -> None:
    nights = NightlyCommand(tmp_path)
    nights.warehouse.mkdir()
    invoke(*nights.words("--ttl", "soon"))
    assert [*nights.warehouse.iterdir()] == []
