"""Troubled nights of a project, as cron starts them: what each comes to, and where it is told.

A night has no home, no terminal, no stdin and hardly any environment. The numbers are those of a
list that was written beforehand. What it has besides is shown elsewhere: the full disk (17), kills
and signals (18, 19) and three days without a night (30) in `test_nights` and `laws/test_killing`; a
second night (20) in `test_nights`; a setting whose line is taken out (25) in `test_project`; a
clock that is set back (23) in `warehouse/test_wrong_clock`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl, write_parquet
from tests.support.processes.commands import held, linux
from tests.support.processes.holder import HOLD, holding
from tests.support.read.folders import contents, keep, restore

pytestmark = [pytest.mark.process, linux]

Done = subprocess.CompletedProcess[bytes]
AUDIT = '\n[audits.odd]\nsql = "SELECT trace_id FROM scores ORDER BY ALL"\nseverity = "{}"\n'
DIMENSIONS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
WEIGHTS = "\n[profiles.code]\n" + "".join(
    f"{name} = {0.25 if number else 0.15}\n" for number, name in enumerate(DIMENSIONS)
)


class Project:
    """A project that init made, after a good night."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.archive = folder, folder / "archive"
        self.warehouse, self.file = folder / "warehouse", folder / "kp_batch.toml"

    def command(self, *words: object, closed: str = "<&-", **environment: str) -> Done:
        program = [sys.executable, "-P", "-m", "kp_batch", *map(str, words)]
        return subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *program],
            cwd=self.folder,
            env={"PATH": os.defpath, "LANG": "C", **environment},
            capture_output=True,
            start_new_session=True,
            timeout=120,
            check=False,
        )

    def night(self, *options: object, **environment: str) -> tuple[int, dict[str, Any], str]:
        """The exit status of a night, its one object, and what stands on stderr."""
        done = self.command("run", "--quiet", "--json", *options, **environment)
        [ending] = map(json.loads, done.stdout.splitlines())
        told = done.stderr.decode("ascii")
        if ending["reason"]:
            assert told.splitlines()[-1] == f"kp-batch: {ending['reason']}"
        return done.returncode, ending, told

    def last_run(self) -> tuple[str, str | None]:
        """How the last run ended, by `status`, for which it is never too late here."""
        return tuple(self.status()["last_run"][name] for name in ("status", "code"))

    def status(self) -> dict[str, Any]:
        done = self.command("status", "--json", "--max-age", "26h")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def scores(self) -> list[tuple[object, ...]]:
        columns = "trace_id, score, novelty, text_hash, source_file"
        with connect(self.warehouse) as connection:
            return connection.execute(f"SELECT {columns} FROM scores ORDER BY ALL").fetchall()

    def change(self, old: str, new: str) -> None:
        text = self.file.read_text("utf-8")
        assert old in text
        self.file.write_text(text.replace(old, new), "utf-8")

    def add_to_file(self, text: str) -> None:
        self.file.write_text(self.file.read_text("utf-8") + text, "utf-8")

    def write(self, name: str, *, good: int, bad: int = 0, stem: str | None = None) -> None:
        stem = stem or name
        rows = [trace(id=f"{stem}-{n:02d}", objective=f"do {stem} {n}") for n in range(good)]
        faulty = [trace(id=f"{stem}-bad-{number}", steps=[]) for number in range(bad)]
        write_jsonl(self.archive / f"{name}.jsonl", [*rows, *faulty])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("thirty") / "project")
    for name in "ab":
        project.write(name, good=20)
    write_parquet(project.archive / "p.parquet", [trace(id="p")])
    begun = project.command("init", "archive", "--embedder", "hashing")
    assert begun.returncode == 0, begun.stderr
    done = project.command("run", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    keep(project.folder)
    return project


@pytest.fixture
def project(made: Project) -> Project:
    restore(made.folder)
    return made


def do_nothing(_: Project) -> None:
    pass


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


def replace_some(project: Project) -> None:
    project.write("b", good=19)


def replace_many(project: Project) -> None:
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


def audit_error(project: Project) -> None:
    project.add_to_file(AUDIT.format("error"))


UNREADABLE = ("refused", "max_unreadable")
LESS = ("--max-unreadable 0", "/archive/")


@pytest.mark.parametrize(
    ("trouble", "exits", "words", "how", "is_new"),
    [
        pytest.param(do_nothing, 0, (), ("nothing_to_do", None), False, id="1"),
        pytest.param(add, 0, (), ("done", None), True, id="2", marks=pytest.mark.telling),
        pytest.param(
            lose_archive, 1, ("'archive'",), ("could_not_begin", "no_archive"), False, id="5"
        ),
        pytest.param(
            lose_half,
            1,
            ("2 of 3 files are gone", "/archive/b.jsonl", "--max-gone 2"),
            ("refused", "max_gone"),
            False,
            id="6",
        ),
        pytest.param(
            cut_new, 1, (*LESS, "c.jsonl is cut: it ends within"), UNREADABLE, False, id="7"
        ),
        pytest.param(
            cut, 1, (*LESS, "b.jsonl is cut: it ends", "which stay"), UNREADABLE, False, id="8"
        ),
        pytest.param(
            cut_parquet, 1, (*LESS, "p.parquet is unreadable: "), UNREADABLE, False, id="10"
        ),
        pytest.param(
            replace_some,
            0,
            ("1 published trace is removed", "b-19 of ", "/archive/b.jsonl"),
            ("done", None),
            True,
            id="11",
            marks=pytest.mark.telling,
        ),
        pytest.param(
            replace_many,
            1,
            ("3 of 41 published", "--max-removed 5%", "/archive/b.jsonl", "once: --max-removed 3"),
            ("refused", "max_removed"),
            False,
            id="12",
        ),
        pytest.param(
            reject,
            1,
            ("--max-new-rejects 0", "no_steps 3", "/archive/c.jsonl, row 47"),
            ("refused", "max_new_rejects"),
            False,
            id="13",
        ),
        pytest.param(correct, 0, (), ("done", None), True, id="14"),
        pytest.param(
            link_nowhere,
            1,
            (*LESS, "link.jsonl is unreadable: it is a link", "nowhere: to /nowhere/x.jsonl"),
            UNREADABLE,
            False,
            id="15",
        ),
        pytest.param(
            name_badly,
            1,
            (*LESS, "caf\\xe9.jsonl is unreadable: its name"),
            UNREADABLE,
            False,
            id="16",
        ),
        pytest.param(
            put_pipe,
            1,
            (*LESS, "b.jsonl is unreadable: it is a pipe"),
            UNREADABLE,
            False,
            id="22-pipe",
            marks=pytest.mark.telling,
        ),
        pytest.param(
            lose_model,
            1,
            ("'/no/model'", "a folder"),
            ("could_not_begin", "encoder"),
            False,
            id="24",
        ),
        pytest.param(
            audit_error, 1, ("odd (41 rows)", '"a-00"'), ("refused", "audit"), False, id="26-error"
        ),
    ],
)
def test_night(  # noqa: PLR0913 (a row of the table)
    project: Project,
    trouble: Callable[[Project], None],
    exits: int,
    words: tuple[str, ...],
    how: tuple[str, str | None],
    *,
    is_new: bool,
) -> None:
    before = project.scores()
    trouble(project)
    returned, ending, told = project.night("--timeout", "60s")
    assert (returned, ending["status"], ending["code"]) == (exits, *how)
    assert [word for word in words if word not in told] == []
    assert bool(told) == bool(words)
    assert project.last_run() == how
    assert (project.scores() != before) == is_new


@pytest.mark.telling
def test_night_3_the_warehouse_is_away(project: Project) -> None:
    expected = require_manifest(project.warehouse).warehouse_id
    project.warehouse.rename(project.folder / "away")
    project.warehouse.mkdir()
    returned, ending, told = project.night()
    assert (returned, ending["status"], ending["code"]) == (1, "could_not_begin", "identity")
    for word in (expected, f"{project.warehouse}: nothing is there", "nothing was made"):
        assert word in told
    status = project.command("status", "--max-age", "26h")
    assert (status.returncode, status.stderr.decode()) == (1, told)
    assert [*project.warehouse.iterdir()] == []


def test_night_4_another_warehouse_is_in_its_place(project: Project) -> None:
    expected = require_manifest(project.warehouse).warehouse_id
    project.warehouse.rename(project.folder / "away")
    project.command("init", "archive", "-o", "other.toml", "--embedder", "none")
    project.command("run", "--project", "other.toml")
    found = require_manifest(project.warehouse).warehouse_id
    before = contents(project.warehouse)
    returned, ending, told = project.night()
    assert (returned, ending["status"], ending["code"]) == (1, "could_not_begin", "identity")
    assert f"{project.warehouse} is warehouse {found}, and not warehouse {expected}" in told
    status = project.command("status", "--max-age", "26h")
    assert (status.returncode, status.stderr.decode()) == (1, told)
    assert contents(project.warehouse) == before


def test_night_9_a_cut_file_is_allowed_once_and_stands(project: Project) -> None:
    before = project.scores()
    cut(project)
    returned, ending, told = project.night("--max-unreadable", 1)
    assert (returned, ending["status"]) == (0, "done")
    assert f"{project.archive}/b.jsonl is cut" in told
    assert project.night()[::2] == (0, "")
    assert project.last_run() == ("nothing_to_do", None)
    assert project.status()["last_success"]["counts"]["cut"] == 1
    assert project.scores() == before


def test_night_21_another_one_runs_for_longer_than_it_waits(project: Project) -> None:
    with holding(HOLD, project.warehouse) as other:
        returned, ending, told = project.night("--wait", "1s")
    assert (returned, ending["status"], ending["code"]) == (1, "could_not_begin", "busy")
    assert f"process {other.pid}" in told


@pytest.mark.telling
def test_night_22_a_file_is_read_for_longer_than_the_run_may_take(project: Project) -> None:
    before = project.scores()
    project.write("new", good=1)
    with held(project.archive / "new.jsonl"):
        returned, ending, told = project.night("--timeout", "8s")
    assert (returned, ending["status"], ending["code"]) == (1, "failed", "timeout")
    assert "the run was not over after --timeout 8s, and is ended in the step read" in told
    assert project.last_run() == ("failed", "timeout")
    assert project.scores() == before


def test_night_22_it_waits_for_longer_than_it_may_take(project: Project) -> None:
    before = project.scores()
    with holding(HOLD, project.warehouse):
        returned, ending, told = project.night("--wait", "--timeout", "4s")
    assert (returned, ending["status"], ending["code"]) == (1, "failed", "timeout")
    assert "--timeout 4s" in told
    assert project.scores() == before


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("\n[audits", f"{WEIGHTS}\n[audits", "weights", "code: the weights sum to 0.9"),
        (
            "max_gone",
            "max_gon",
            "settings",
            "[limits] has no key 'max_gon', did you mean 'max_gone'?",
        ),
    ],
    ids=["25-sum", "25-key"],
)
def test_night_of_a_file_with_faults(
    project: Project, old: str, new: str, code: str, words: str
) -> None:
    before = project.scores()
    text = project.file.read_text("utf-8")
    project.file.write_text(text.replace(old, new, 1), "utf-8")
    returned, ending, told = project.night()
    assert (returned, ending["status"], ending["code"]) == (1, "refused", code)
    assert words in told
    assert project.last_run() == ("refused", code)
    assert project.scores() == before
    project.file.write_text(text, "utf-8")
    assert project.night()[::2] == (0, "")


def test_night_25_the_file_is_no_toml(project: Project) -> None:
    """Nobody knows then which warehouse is meant: `status` tells it as well."""
    project.add_to_file("\n[limits")
    returned, ending, told = project.night()
    assert (returned, ending["status"]) == (1, "refused")
    assert "kp_batch.toml cannot be read" in told
    status = project.command("status", "--max-age", "26h")
    assert (status.returncode, status.stderr.decode()) == (1, told)


def test_night_26_an_audit_warns_once(project: Project) -> None:
    project.add_to_file(AUDIT.format("warn"))
    returned, _, told = project.night()
    assert (returned, "audit odd found 41 rows" in told) == (0, True)
    assert project.night()[::2] == (0, "")
    audits = project.status()["last_success"]["audits"]
    assert {each["name"]: each["rows"] for each in audits if each["rows"]} == {"odd": 41}


def test_night_27_the_file_would_bring_back_what_a_rollback_undid(project: Project) -> None:
    before = project.scores()
    project.change("# cache_size = 1000", "cache_size = 2")
    told = "kp-batch: settings changed: cache size 1000 to 2\n"
    assert project.night()[::2] == (0, told)
    project.command("rollback", "previous")
    [brought_back] = project.status()["brings_back"]
    returned, ending, told = project.night()
    assert (returned, ending["status"], ending["code"]) == (1, "refused", "rolled_back")
    assert brought_back in told
    assert f"{brought_back}; change it there" in project.command("status").stdout.decode()
    line = project.file.read_text("utf-8").split("\n").index("cache_size = 2") + 1
    assert f"cache_size 2 (line {line}); change it there" in told
    assert "--accept" in told
    assert project.last_run() == ("refused", "rolled_back")
    assert project.scores() == before


def test_a_forget_lets_the_file_bring_nothing_back(project: Project) -> None:
    project.change("# cache_size = 1000", "cache_size = 2")
    project.night()
    project.command("rollback", "previous")
    project.command("forget", project.scores()[0][0])
    assert project.night()[1]["code"] == "rolled_back"
    assert project.status()["brings_back"]


PLACES: dict[str, dict[str, str]] = {
    "stdout": {"closed": "<&- >&-"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "time zone": {"TZ": "Asia/Kathmandu"},
    "optimized": {"PYTHONOPTIMIZE": "2"},
    "temporary": {"TMPDIR": "/proc"},
}


@pytest.fixture(scope="module")
def usual(made: Project) -> list[tuple[object, ...]]:
    """The scores after a night in which all is as it should be."""
    restore(made.folder)
    add(made)
    assert made.night()[::2] == (0, "")
    return made.scores()


@pytest.mark.parametrize("environment", PLACES.values(), ids=[f"29-{name}" for name in PLACES])
def test_night_in_an_odd_environment(
    usual: list[tuple[object, ...]], project: Project, environment: dict[str, str]
) -> None:
    add(project)
    done = project.command("run", "--quiet", **environment)
    is_moved = "TMPDIR" in environment
    told = "kp-batch: warning: TMPDIR is /proc, which takes no file: " if is_moved else ""
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode().startswith(told)
    assert len(done.stderr.splitlines()) == is_moved
    assert project.last_run() == ("done", None)
    assert project.scores() == usual
