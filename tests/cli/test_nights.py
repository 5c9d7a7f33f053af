"""Troubled nights of a project: what each comes to, and where it is told.

Each says how it ended by its exit status, on stderr, by `run --json`, in the mark that it leaves,
and by `status`. Those in which the environment matters run as cron starts them.
"""

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.run_result import GOOD
from tests.support.make.archives import trace, write_parquet
from tests.support.processes.commands import blocked_file, is_running, linux, until
from tests.support.processes.projects import Ended, Project
from tests.support.read.folders import contents, keep, restore

pytestmark = pytest.mark.slow

AUDIT = '\n[audits.odd]\nsql = "SELECT trace_id FROM scores ORDER BY ALL"\nseverity = "{}"\n'
PARTS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
WEIGHTS = "\n[profiles.code]\n" + "\n".join(f"{part} = 0.225" for part in PARTS)


class Published(NamedTuple):
    """What is published."""

    scores: list[dict[str, Any]]
    runs: list[dict[str, Any]]

    @classmethod
    def of(cls, project: Project) -> "Published":
        return cls(project.scores(), project.ask("SELECT run_id, status FROM runs ORDER BY number"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Published]:
    project = Project(tmp_path_factory.mktemp("nights") / "project")
    for name in "ab":
        project.write(name, good=20)
    write_parquet(project.archive / "p.parquet", [trace(id="p")])
    project.make()
    keep(project.folder)
    return project, Published.of(project)


@pytest.fixture
def before(made: tuple[Project, Published]) -> Published:
    return made[1]


@pytest.fixture
def project(made: tuple[Project, Published]) -> Project:
    restore(made[0].folder)
    return made[0]


# --- what happens before the night ---


def do_nothing(_: Project) -> None:
    """All is as it was."""


def add(project: Project) -> None:
    for number in range(10):
        project.write(f"new-{number}", good=1)


def lose_archive(project: Project) -> None:
    project.archive.rename(project.folder / "away")
    project.archive.mkdir()


def lose_half(project: Project) -> None:
    (project.archive / "b.jsonl").unlink()
    (project.archive / "p.parquet").unlink()


def cut(project: Project, name: str = "b") -> None:
    content = (project.archive / "b.jsonl").read_bytes().replace(b'"b-', f'"{name}-'.encode())
    (project.archive / f"{name}.jsonl").write_bytes(content[:2_500])


def cut_new(project: Project) -> None:
    cut(project, "c")


def cut_parquet(project: Project) -> None:
    path = project.archive / "p.parquet"
    path.write_bytes(path.read_bytes()[:-300])


def lose_one(project: Project) -> None:
    project.write("b", good=19)


def lose_three(project: Project) -> None:
    project.write("b", good=17)


def reject(project: Project) -> None:
    project.write("c", good=47, bad=3)


def correct(project: Project) -> None:
    path = project.archive / "b.jsonl"
    before, content = path.stat(), path.read_bytes()
    path.write_bytes(content.replace(b'"do b 3"', b'"do b 0"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def link_nowhere(project: Project) -> None:
    (project.archive / "link.jsonl").symlink_to("/nowhere/x.jsonl")


def name_badly(project: Project) -> None:
    project.write("good", good=1)
    (project.archive / "caf\udce9.jsonl").write_bytes((project.archive / "a.jsonl").read_bytes())


def put_pipe(project: Project) -> None:
    (project.archive / "b.jsonl").unlink()
    os.mkfifo(project.archive / "b.jsonl")


def lose_model(project: Project) -> None:
    project.change('"hashing"', '"/no/model"')
    project.write("new", good=1)


def fail_an_audit(project: Project) -> None:
    project.add(AUDIT.format("error"))


def weigh_wrongly(project: Project) -> None:
    project.add(WEIGHTS)


def misspell(project: Project) -> None:
    project.change("max_gone", "max_gon")


def no_room(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def no_right(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied", "runs")


# --- the table ---


@dataclass(frozen=True)
class Trouble:
    """A troubled night, and what it comes to."""

    happens: Callable[[Project], None]
    how: str  # exit status, status and code
    words: tuple[str, ...]  # on stderr; none: it is empty
    options: tuple[object, ...] = ()
    broken: Mapping[str, object] = field(default_factory=dict)  # of the product, and by what
    changes: bool = False  # whether scores are others afterwards
    by_cron: bool = False


def row(
    happens: Callable[[Project], None], how: str, *words: str, telling: bool = False, **more: Any
) -> Any:
    """A row of the table."""
    name = [happens.__name__, *map(str, (*more.get("options", ()), *more.get("broken", ())))]
    marks = [pytest.mark.telling] * telling
    marks += [pytest.mark.process, linux] if more.get("by_cron") else []
    return pytest.param(Trouble(happens, how, words, **more), id="-".join(name), marks=marks)


UNREADABLE = "1 refused max_unreadable"
LESS = ("--max-unreadable 0", "/archive/")
SOON = {"options": ("--ttl", "soon")}
FULL = "1 failed disk_full"
NIGHTS = [
    row(do_nothing, "0 nothing_to_do"),
    row(add, "0 done", changes=True, by_cron=True, telling=True),
    row(lose_archive, "1 could_not_begin no_archive", "'archive'", telling=True),
    row(lose_half, "1 refused max_gone", "2 of 3 files are gone", "b.jsonl", "--max-gone 2"),
    row(cut_new, UNREADABLE, *LESS, "c.jsonl is cut: it ends within"),
    row(cut, UNREADABLE, *LESS, "b.jsonl is cut: it ends", "these stay published"),
    row(cut, "0 done", "b.jsonl is cut", options=("--max-unreadable", 1)),
    row(cut_parquet, UNREADABLE, *LESS, "p.parquet is unreadable: "),
    row(lose_one, "0 done", "1 published trace is removed", "b-19 of ", "b.jsonl", changes=True),
    row(
        lose_three,
        "1 refused max_removed",
        *("3 of 41 published", "--max-removed 5%", "/archive/b.jsonl", "once: --max-removed 3"),
        telling=True,
    ),
    row(
        reject,
        "1 refused max_new_rejects",
        *("--max-new-rejects 0", "no_steps 3", "/archive/c.jsonl, row 47"),
    ),
    row(correct, "0 done", changes=True),
    row(link_nowhere, UNREADABLE, *LESS, "link.jsonl", "a link", "nowhere: to /nowhere/x.jsonl"),
    row(name_badly, UNREADABLE, *LESS, "caf\\xe9.jsonl is unreadable: its name", by_cron=True),
    row(put_pipe, UNREADABLE, *LESS, "b.jsonl", "it is a pipe", by_cron=True, telling=True),
    row(lose_model, "1 could_not_begin encoder", "'/no/model'", "a folder", by_cron=True),
    row(weigh_wrongly, "1 refused weights", "code: the weights sum to 0.9"),
    row(misspell, "1 refused settings", "no key 'max_gon', did you mean 'max_gone'?"),
    row(add, "2 refused settings", "--ttl", **SOON),
    row(fail_an_audit, "1 refused audit", "odd (41 rows)", '"a-00"'),
    # The disk is full at once, in the middle, and at the manifest.
    row(add, FULL, "warehouse", broken={"kp_batch.warehouse.layout.MIN_FREE_BYTES": 1 << 60}),
    row(
        add,
        FULL,
        "is full",
        broken={"kp_batch.pipeline.rescore.write_tables": no_room},
        telling=True,
    ),
    row(add, FULL, "is full", broken={"kp_batch.warehouse.publication.check_readable": no_room}),
    row(
        add,
        "1 failed no_access",
        "Permission denied",
        broken={"kp_batch.warehouse.publication.check_readable": no_right},
    ),
    # The mark takes the room that it has.
    row(
        add,
        "2 refused settings",
        "--ttl",
        **SOON,
        broken={"kp_batch.files.temporary_sibling": no_room},
    ),
    row(
        reject,
        "1 refused max_new_rejects",
        *("warning: this run could not be recorded in runs: ", "Permission denied"),
        broken={"kp_batch.pipeline.rescore.publish_failure": no_right},
    ),
]


@pytest.mark.parametrize("trouble", NIGHTS)
def test_night(
    project: Project, before: Published, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble.happens(project)
    for name, instead in trouble.broken.items():
        monkeypatch.setattr(name, instead)
    ended = (project.night_by_cron if trouble.by_cron else project.night)(*trouble.options)
    monkeypatch.undo()
    exits, *how = trouble.how.split()
    assert ended.how == (int(exits), *how, None)[:3]
    assert [word for word in trouble.words if word not in ended.err] == []
    assert bool(ended.err) == bool(trouble.words)
    check_reported(project, before, ended, changes=trouble.changes)


def check_reported(
    project: Project, before: Published, ended: Ended, *, changes: bool = False
) -> None:
    """Check the publication, and that the row in `runs`, the mark and `status` agree."""
    printed, after, mark = ended.printed, Published.of(project), project.mark()
    is_good = printed["status"] in GOOD
    row = {"run_id": printed["run_id"], "status": "done" if is_good else "failed"}
    assert after.runs == before.runs + [row] * bool(printed["run_id"])
    assert (after.scores != before.scores) == changes
    for name in ("status", "reason", "code", "run_id"):
        assert getattr(mark.last_run, name) == printed[name]
    assert mark.last_success
    if is_good:
        assert mark.last_success == mark.last_run
    else:
        assert mark.last_success.run_id == before.runs[-1]["run_id"]
    as_it_was = contents(project.tables)
    found = project.status("--max-age", "26h")
    assert found["last_run"] == json.loads(json.dumps(mark.last_run, default=vars))
    assert found["last_success"] == json.loads(json.dumps(mark.last_success, default=vars))
    assert found["last_run"]["started_at"] <= found["last_run"]["finished_at"]
    assert found["age_s"] < 3_600
    assert found["free_bytes"] > 0
    project.status("--fail-if-failed", exits=not is_good)
    assert contents(project.tables) == as_it_was


# --- what is no row of it ---


@pytest.mark.telling
@pytest.mark.parametrize("there", ["nothing", "an empty folder", "another"])
def test_without_the_warehouse_that_it_names_nothing_is_made(project: Project, there: str) -> None:
    place = project.tables
    named = require_manifest(place).warehouse_id
    told = f"{place} contains no warehouse, but the project names warehouse {named}; "
    if there == "another":
        project.change(f'"{named}"', '"another"')
        told = f"{place} contains warehouse {named}, but the project names warehouse another"
    else:
        place.rename(project.folder / "away")
    if there == "an empty folder":
        place.mkdir()
    as_it_was = contents(project.folder)
    night = project.night()
    assert night.how == (1, "could_not_begin", "identity")
    assert told in night.err
    assert ("contains no warehouse" in night.err) == (there != "another")
    for words in (["status"], ["plan"], ["sql", "FROM scores"], ["runs"], ["vacuum"]):
        for by_name in ([], ["--warehouse", "warehouse"]):
            done = project.command(*words, *by_name)
            assert (done.returncode, done.stdout, done.stderr) == (1, "", night.err), words
    assert contents(project.folder) == as_it_was


def test_status_reports_a_file_that_cannot_be_read(project: Project) -> None:
    """Nobody knows then which warehouse is meant."""
    project.add("[limits")
    night = project.night()
    assert night.how[:2] == (1, "refused")
    assert "kp_batch.toml cannot be read" in night.err
    status = project.command("status", "--max-age", "26h")
    assert (status.returncode, status.stderr) == (1, night.err)


@pytest.mark.telling
def test_open_warnings_are_logged_once_and_shown_by_status_until_fixed(project: Project) -> None:
    project.add(AUDIT.format("warn"))
    cut(project)
    (project.archive / "odd.parquet").write_bytes(b"odd")
    (project.archive / "p.parquet").unlink()
    project.write("c", good=47, bad=3)
    allowed = ("--max-unreadable", 2, "--max-gone", 1, "--max-new-rejects", 3)
    night = project.night(*allowed)
    assert night.how == (0, "done", None)
    assert "b.jsonl is cut" in night.err
    assert "audit odd found 88 rows" in night.err
    text = "2 files unreadable (1 cut), 1 file gone, 3 rows rejected, audit odd: 88 rows"
    assert text in project.command("status").stdout
    again = project.night()
    assert (again.how, again.err) == ((0, "nothing_to_do", None), "")
    assert text in project.command("status").stdout


def test_only_a_run_leaves_a_mark(project: Project) -> None:
    add(project)
    before = project.mark()
    for words in (
        ("run", "--preview", "--no-prefect"),
        ("run", "--preview", "--no-prefect", "--ttl", "soon"),
        ("plan",),
        ("vacuum",),
    ):
        project.command(*words)
        assert project.mark() == before, words


@linux
@pytest.mark.process
def test_an_odd_environment_changes_nothing(project: Project) -> None:
    add(project)
    assert project.night().err == ""
    usual = project.scores()
    restore(project.folder)
    add(project)
    odd = {"PYTHONOPTIMIZE": "2", "PYTHONIOENCODING": "latin-1", "TZ": "Asia/Kathmandu"}
    process = project.started("run", "--quiet", closed="<&- >&-", TMPDIR="/proc", **odd)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    [line] = err.splitlines()
    assert line.startswith("kp-batch: warning: TMPDIR (/proc) is not writable, so ")
    assert project.last_run() == ("done", None)
    assert project.scores() == usual


@linux
@pytest.mark.telling
@pytest.mark.process
def test_a_file_is_read_for_longer_than_the_night_may_take(
    project: Project, before: Published
) -> None:
    project.write("new", good=1)
    with blocked_file(project.archive / "new.jsonl"):
        night = project.night_by_cron("--timeout", "8s")
    assert night.how == (1, "failed", "timeout")
    assert "the run took longer than --timeout 8s, and was stopped in the step read" in night.err
    check_reported(project, before, night)


@linux
@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "of_worker", "how"),
    [
        pytest.param(
            *(signal.SIGTERM, False, (143, "stopped", "signal")),
            id="stopped",
            marks=pytest.mark.telling,
        ),
        pytest.param(signal.SIGKILL, False, None, id="killed", marks=pytest.mark.telling),
        pytest.param(signal.SIGKILL, True, (137, "failed", "killed"), id="worker killed"),
    ],
)
def test_a_night_under_way(
    project: Project,
    before: Published,
    number: signal.Signals,
    how: tuple[int, str, str] | None,
    *,
    of_worker: bool,
) -> None:
    with project.auditing() as process:
        running = project.status()["last_run"]
        assert (running["status"], running["step"]) == ("running", "audit")
        second = project.night()
        assert second.how == (1, "could_not_begin", "busy")
        assert f"process {running['pid']}" in second.err
        assert project.status("--fail-if-failed")["last_run"] == running
        os.kill(running["pid"] if of_worker else process.pid, number)
        out, err = process.communicate(timeout=60)
    until(lambda: not is_running(running["pid"]), 20)
    if how:
        night = Ended.of(process.returncode, out, err)
        assert night.how == how
        check_reported(project, before, night)
    else:
        assert (process.returncode, out) == (-9, "")
        found = project.status("--fail-if-failed", "--max-age", "26h", exits=1)
        assert found["last_run"] == running | {"status": "killed"}
    assert project.scores() == before.scores
    assert project.night().how == (0, "nothing_to_do", None)
