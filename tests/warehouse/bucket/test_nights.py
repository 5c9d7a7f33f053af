"""Troubled nights of a project whose warehouse is in a bucket, on two machines.

A night in which a bucket makes no difference is a row of `cli/test_nights`; what a bucket that does
not answer comes to is shown in `test_no_answer`.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from kp_batch.storage.store import store_at
from tests.support.processes.commands import linux, until
from tests.support.processes.projects import Ended, Project

pytestmark = pytest.mark.process

SMALL = 'mount -t tmpfs -o size=16m none "$1" && shift && exec "$@"'
MOUNTS = ["unshare", "-rm", "sh", "-c"]


@pytest.fixture
def project(tmp_path: Path, bucket: str) -> Project:
    """A project that init made, after a good night."""
    made = Project(tmp_path, f"{bucket}/team/warehouse", {"XDG_CACHE_HOME": str(tmp_path / "one")})
    for name in "ab":
        made.write(name, good=3)
    made.make()
    return made


@pytest.fixture
def other(project: Project) -> Project:
    """The same project on another machine, which has no copy yet."""
    return replace(project, environment={"XDG_CACHE_HOME": str(project.folder / "other")})


def cache(machine: Project) -> Path:
    return Path(machine.environment["XDG_CACHE_HOME"])


def objects(url: str) -> dict[str, tuple[str, int]]:
    """What is in a bucket, and since when."""
    return {each.path: (each.etag, each.mtime_ns) for each in store_at(url).objects()}


def name_empty_place(project: Project, _: str) -> None:
    project.change("/team/warehouse", "/team/empty")


def name_no_bucket(project: Project, _: str) -> None:
    project.change(project.place, f"s3://kp-{uuid4().hex}/team/warehouse")


def name_another(project: Project, warehouse_id: str) -> None:
    project.change(f'"{warehouse_id}"', '"another"')


AWAY = " contains no warehouse, but the project names warehouse {}; "
ANOTHER = " contains warehouse {}, but the project names warehouse another"


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (name_empty_place, AWAY),
        (name_no_bucket, AWAY),
        pytest.param(name_another, ANOTHER, marks=pytest.mark.telling),
    ],
)
def test_without_the_warehouse_that_it_names_nothing_is_made(
    project: Project, other: Project, happens: Callable[[Project, str], None], told: str
) -> None:
    [line] = [each for each in project.file.read_text().split("\n") if "warehouse_id" in each]
    warehouse_id = line.split('"')[1]
    happens(project, warehouse_id)
    before = objects(project.place)
    night = project.night()
    assert night.how == (1, "could_not_begin", "identity")
    assert told.format(warehouse_id) in night.err
    assert ("contains no warehouse" in night.err) == (told == AWAY)
    assert "disk" not in night.err
    for machine in (project, other):
        for words in (["status", "--max-age", "26h"], ["runs"], ["plan"], ["vacuum"]):
            done = machine.command(*words)
            assert (done.returncode, done.stdout, done.stderr) == (1, "", night.err), words
    assert not cache(other).exists()  # nothing was fetched
    assert other.night()[::2] == night[::2]
    assert objects(project.place) == before


@pytest.mark.telling
def test_a_refused_night_is_shown_on_every_machine(project: Project, other: Project) -> None:
    before = project.scores()
    (project.archive / "a.jsonl").rename(project.folder / "kept")
    assert project.night().how == (1, "refused", "max_gone")
    assert other.last_run() == project.last_run() == ("refused", "max_gone")
    (project.folder / "kept").rename(project.archive / "a.jsonl")
    project.change("max_gone", "max_gon")
    fresh = replace(project, environment={"XDG_CACHE_HOME": str(project.folder / "third")})
    assert fresh.night().how == (1, "refused", "settings")  # before it has a copy
    project.change("max_gon", "max_gone")
    assert other.last_run() == project.last_run() == ("refused", "settings")
    assert project.status()["last_success"]["status"] == "done"
    assert other.scores() == before


def test_a_night_whose_credentials_are_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto import settings

    with monkeypatch.context() as patch:
        patch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        night = project.night()
        status = project.command("status", "--max-age", "26h")
    assert night.how == (1, "could_not_begin", "no_access")
    for word in ("InvalidAccessKeyId: ", f"'{project.place}/", "look at the credentials"):
        assert word in night.err
    assert (status.returncode, status.stdout) == (1, "")
    told = f"kp-batch: {project.place} cannot be reached: access is denied ("
    assert status.stderr.startswith(told)
    assert project.last_run() == ("could_not_begin", "no_access")


@linux
@pytest.mark.skipif(
    subprocess.run([*MOUNTS, "true"], check=False, capture_output=True).returncode != 0,
    reason="may not mount a disk",
)
def test_a_night_whose_disk_for_the_copy_is_full(project: Project, other: Project) -> None:
    project.write("c", good=1)
    cache(other).mkdir()
    night = other.night_by_cron(by=[*MOUNTS, SMALL, "sh", str(cache(other))])
    assert night.how == (1, "failed", "disk_full")
    assert str(cache(other)) in night.err
    assert project.last_run() == ("failed", "disk_full")


@linux
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.telling), signal.SIGKILL]
)
def test_a_night_under_way_keeps_other_machines_waiting_until_it_is_stopped(
    project: Project, other: Project, number: signal.Signals
) -> None:
    with project.auditing() as process:
        running = project.status()["last_run"]
        for machine in (project, other):
            night = machine.night()
            assert night.how == (1, "could_not_begin", "busy")
            assert f"process {running['pid']} on " in night.err
            assert machine.last_run()[0] == "running"
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
    if number == signal.SIGTERM:
        assert Ended.of(process.returncode, out, err).how == (143, "stopped", "signal")
        assert project.last_run() == other.last_run() == ("stopped", "signal")
        assert other.status()["last_success"]["status"] == "done"
    else:
        until(lambda: project.last_run()[0] == "killed", 20)
        assert other.night().how == (1, "could_not_begin", "busy")  # for an hour
        assert project.night().how == (0, "nothing_to_do", None)
        assert other.last_run() == ("nothing_to_do", None)
    assert other.night().how == (0, "nothing_to_do", None)


def test_what_a_rollback_undid_is_refused_on_every_machine(
    project: Project, other: Project
) -> None:
    project.change("# cache_size = 1000", "cache_size = 1")
    assert project.night().how == (0, "done", None)
    assert project.command("rollback", "previous").returncode == 0
    found = other.status()
    assert found["last_success"]["rolled_back"]["undone"]
    assert "cache_size 1 (line " in found["brings_back"][0]
    assert other.night().how == (1, "refused", "rolled_back")
    assert project.last_run() == ("refused", "rolled_back")
    assert other.night("--ignore-rollback").how == (0, "done", None)
    assert project.night().how == (0, "nothing_to_do", None)
