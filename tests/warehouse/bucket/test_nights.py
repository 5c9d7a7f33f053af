"""Troubled nights of a project whose warehouse is in a bucket, as cron starts them.

A night has no home, no terminal, no stdin and hardly any environment. What a bucket that does not
answer comes to is shown elsewhere, as are the nights in which a bucket makes no difference: see
`cli/test_thirty_nights`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kp_batch.storage.store import store_at
from kp_batch.warehouse.last_run import LAST_RUN
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.buckets import make_bucket
from tests.support.processes.commands import invoke, linux, until

pytestmark = [pytest.mark.process, linux]

LONG_AUDIT = """
[audits.long]
sql = "SELECT 1 FROM range(1000000000) a, range(1000000000) b WHERE hash(a.range, b.range) = 1"
"""
AWAY = "nothing is there, and nothing was made"
SMALL = 'mount -t tmpfs -o size=16m none "$1" && shift && exec "$@"'
MOUNTS = ["unshare", "-rm", "sh", "-c"]
Ended = tuple[int, str, str | None, str]


class Project:
    """A project on one machine, whose warehouse is in a bucket."""

    def __init__(self, folder: Path, url: str, machine: str = "one") -> None:
        self.folder, self.url, self.cache = folder, url, folder / machine
        self.archive, self.file = folder / "archive", folder / "kp_batch.toml"

    def elsewhere(self) -> "Project":
        """The same project on another machine, which has no copy yet."""
        return Project(self.folder, self.url, uuid4().hex)

    def started(self, *words: object, by: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        places = {"PATH": os.defpath, "LANG": "C", "XDG_CACHE_HOME": str(self.cache)}
        return subprocess.Popen(
            [*by, sys.executable, "-P", "-m", "kp_batch", *map(str, words)],
            cwd=self.folder,
            env=places | aws,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def asked(self, *words: object) -> tuple[int, str, str]:
        """Another command, in this process."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(self.cache))
            patch.chdir(self.folder)
            done = invoke(*words)
        return done.returncode, done.stdout, done.stderr

    def night(self, *options: object, by: Sequence[str] = ()) -> Ended:
        """The exit status of a night, how it ended, the code, and what stands on stderr."""
        process = self.started("run", "--quiet", "--json", *options, by=by)
        out, err = process.communicate(timeout=120)
        return self.told(process.returncode, out.decode(), err.decode("ascii"))

    @staticmethod
    def told(status: int, out: str, err: str) -> Ended:
        [ending] = map(json.loads, out.splitlines())
        if ending["reason"]:
            assert err.splitlines()[-1].startswith(f"kp-batch: {ending['reason']}")
        return status, ending["status"], ending["code"], err

    def last_run(self) -> tuple[str, str | None]:
        """How the last run ended, by `status`, for which it is never too late here."""
        return tuple(self.status()["last_run"][name] for name in ("status", "code"))

    def status(self) -> dict[str, Any]:
        returned, out, err = self.asked("status", "--json", "--max-age", "26h")
        assert returned == 0, err
        return json.loads(out)

    def objects(self) -> dict[str, tuple[str, int]]:
        """What is in the bucket, and since when."""
        return {each.path: (each.etag, each.mtime_ns) for each in store_at(self.url).objects()}

    def scores(self) -> list[dict[str, Any]]:
        query = "SELECT trace_id, score FROM scores ORDER BY ALL"
        return json.loads(self.asked("sql", query, "--json")[1])

    def write(self, name: str, good: int = 3) -> None:
        rows = [trace(id=f"{name}-{n}", objective=f"do {name} {n}") for n in range(good)]
        write_jsonl(self.archive / f"{name}.jsonl", rows)

    def change(self, old: str, new: str) -> None:
        text = self.file.read_text("utf-8")
        assert old in text
        self.file.write_text(text.replace(old, new), "utf-8")

    @contextmanager
    def auditing(self) -> Generator["subprocess.Popen[bytes]"]:
        """A night at a step that lasts for hours."""
        text = self.file.read_text("utf-8")
        self.file.write_text(text + LONG_AUDIT, "utf-8")
        process = self.started("run", "--quiet", "--json")
        try:
            until(lambda: self.status()["last_run"]["step"] == "audit", 60)
            self.file.write_text(text, "utf-8")
            yield process
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def project(tmp_path: Path, bucket: str) -> Project:
    """A project that init made, after a good night."""
    made = Project(tmp_path, f"{bucket}/team/warehouse")
    for name in "ab":
        made.write(name)
    begun = made.asked("init", "archive", "--warehouse", made.url, "--embedder", "hashing")
    assert begun[0] == 0, begun
    assert made.asked("run", "--quiet") == (0, "", "")
    return made


@pytest.fixture
def other(project: Project) -> Project:
    return project.elsewhere()


def test_nights_1_and_2_with_nothing_to_do_and_with_new_files(project: Project) -> None:
    before = project.scores()
    assert project.night() == (0, "nothing_to_do", None, "")
    assert project.scores() == before
    project.write("c")
    assert project.night() == (0, "done", None, "")
    assert project.last_run() == ("done", None)
    assert len(project.scores()) == len(before) + 3


@pytest.mark.telling
@pytest.mark.parametrize("is_bucket_there", [True, False])
def test_night_3_the_warehouse_is_away(project: Project, s3: str, *, is_bucket_there: bool) -> None:
    name = f"kp-{uuid4().hex}"
    away = make_bucket(s3, name) if is_bucket_there else f"s3://{name}"
    project.change(project.url, f"{away}/team/warehouse")
    expected = json.loads(store_at(project.url).read("manifest.json")[0])["warehouse_id"]
    returned, how, code, told = project.night()
    assert (returned, how, code) == (1, "could_not_begin", "identity")
    assert f"warehouse {expected}, which the project names, is not in {away}/team" in told
    assert AWAY in told
    assert "bucket" in told
    assert "disk" not in told
    assert project.asked("status", "--max-age", "26h") == (1, "", told)
    for words in (["runs"], ["plan"], ["vacuum"], ["run", "--preview", "--quiet"]):
        assert project.asked(*words) == (1, "", told), words
    if is_bucket_there:
        assert list(store_at(away).objects()) == []


def test_night_3_what_was_published_is_gone(project: Project, other: Project) -> None:
    store = store_at(project.url)
    store.delete([each.path for each in store.objects()])
    for machine in (project, other):
        returned, how, code, told = machine.night()
        assert (returned, how, code) == (1, "could_not_begin", "identity")
        assert AWAY in told
        assert machine.asked("status", "--max-age", "26h") == (1, "", told)
    assert project.objects() == {}


def test_night_4_another_warehouse_is_in_its_place(project: Project) -> None:
    another = f"{project.url}-2"
    words = ("--warehouse", another, "--embedder", "none", "--project", "/dev/null")
    assert project.asked("run", "archive", *words)[0] == 0
    expected, found = (
        json.loads(store_at(url).read("manifest.json")[0])["warehouse_id"]
        for url in (project.url, another)
    )
    project.change(f'"{project.url}"', f'"{another}"')
    there = Project(project.folder, another)
    before = there.objects()
    returned, how, code, told = there.night()
    assert (returned, how, code) == (1, "could_not_begin", "identity")
    assert f"{another} is warehouse {found}, and not warehouse {expected}" in told
    fresh = there.elsewhere()
    for words in (["status", "--max-age", "26h"], ["runs"], ["plan"], ["vacuum"]):
        assert fresh.asked(*words) == (1, "", told), words
    assert not fresh.cache.exists()  # nothing was fetched
    assert there.objects() == before


def test_nights_5_to_8_of_the_archive_are_told_on_every_machine(
    project: Project, other: Project
) -> None:
    before = project.scores()
    (project.archive / "a.jsonl").rename(project.folder / "kept")
    assert project.night()[:3] == (1, "refused", "max_gone")
    assert other.last_run() == ("refused", "max_gone")
    (project.folder / "kept").rename(project.archive / "a.jsonl")
    (project.archive / "c.jsonl").write_bytes(b'{"id": "c')
    assert other.night()[:3] == (1, "refused", "max_unreadable")
    assert project.last_run() == ("refused", "max_unreadable")
    project.archive.rename(project.folder / "away")
    assert project.night()[:3] == (1, "could_not_begin", "no_archive")
    assert other.last_run() == ("could_not_begin", "no_archive")
    assert other.scores() == project.scores() == before


@pytest.mark.telling
def test_a_night_that_fails_before_it_has_a_copy_is_told(project: Project, other: Project) -> None:
    project.change("max_gone", "max_gon")
    assert other.night()[:2] == (1, "refused")
    project.change("max_gon", "max_gone")
    assert project.last_run() == other.last_run() == ("refused", "settings")
    assert project.status()["last_success"]["status"] == "done"


def test_a_night_whose_credentials_are_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto import settings

    project.write("c")
    with monkeypatch.context() as patch:
        patch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        returned, how, code, told = project.night()
        status = project.asked("status", "--max-age", "26h")
    assert (returned, how, code) == (1, "could_not_begin", "no_access")
    assert "InvalidAccessKeyId: " in told
    assert f"'{project.url}/" in told
    assert "look at the credentials" in told
    assert (status[0], status[1]) == (1, "")
    assert status[2].startswith(f"kp-batch: {project.url} cannot be reached: access is denied (")
    assert project.last_run() == ("could_not_begin", "no_access")
    assert project.night() == (0, "done", None, "")


@pytest.mark.skipif(
    subprocess.run([*MOUNTS, "true"], check=False, capture_output=True).returncode != 0,
    reason="may not mount a disk",
)
def test_night_17_the_disk_of_the_copies_is_full(project: Project, other: Project) -> None:
    before = project.scores()
    project.write("c")
    other.cache.mkdir()
    by = [*MOUNTS, SMALL, "sh", str(other.cache)]
    returned, how, code, told = other.night(by=by)
    assert (returned, how, code) == (1, "failed", "disk_full")
    assert str(other.cache) in told
    assert project.last_run() == ("failed", "disk_full")
    assert project.scores() == before


def test_nights_18_and_20_a_second_one_while_it_runs_and_after_it_was_killed(
    project: Project, other: Project
) -> None:
    before = project.scores()
    with project.auditing() as process:
        running = project.status()["last_run"]
        for machine in (project, other):
            returned, how, code, told = machine.night()
            assert (returned, how, code) == (1, "could_not_begin", "busy")
            assert f"process {running['pid']} on " in told
            assert machine.last_run()[0] == "running"
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        until(lambda: project.last_run()[0] == "killed", 20)
    assert other.night()[:3] == (1, "could_not_begin", "busy")  # for an hour
    assert project.scores() == other.scores() == before
    assert project.night() == (0, "nothing_to_do", None, "")
    assert other.last_run() == ("nothing_to_do", None)
    assert other.night() == (0, "nothing_to_do", None, "")


@pytest.mark.telling
def test_night_19_stopped_by_a_signal_lets_other_machines_write_at_once(
    project: Project, other: Project
) -> None:
    with project.auditing() as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    ended = project.told(process.returncode, out.decode(), err.decode())
    assert ended[:3] == (128 + signal.SIGTERM, "stopped", "signal")
    assert project.last_run() == other.last_run() == ("stopped", "signal")
    assert other.status()["last_success"]["status"] == "done"
    assert other.night() == (0, "nothing_to_do", None, "")


def test_night_27_on_every_machine_the_file_would_bring_back_what_a_rollback_undid(
    project: Project, other: Project
) -> None:
    before = project.scores()
    project.change("# cache_size = 1000", "cache_size = 1")
    changed = "kp-batch: settings changed: cache size 1000 to 1\n"
    assert project.night() == (0, "done", None, changed)
    assert project.asked("rollback", "previous")[0] == 0
    for machine in (other, project):
        told = machine.status()
        assert told["last_success"]["rolled_back"]["undone"]
        assert "cache_size 1 (line " in told["brings_back"][0]
    for machine in (other, project):
        returned, how, code, told = machine.night()
        assert (returned, how, code) == (1, "refused", "rolled_back")
        assert "cache_size 1 (line " in told
    assert project.last_run() == other.last_run() == ("refused", "rolled_back")
    assert other.scores() == before
    assert other.night("--accept") == (0, "done", None, changed)
    assert project.night() == (0, "nothing_to_do", None, "")


def test_night_30_no_night_for_three_days(project: Project, other: Project) -> None:
    store = store_at(project.url)
    mark = json.loads(store.read(LAST_RUN)[0])
    mark["last_success"]["finished_at"] = (datetime.now(UTC) - timedelta(days=3)).isoformat()
    store.write(LAST_RUN, json.dumps(mark).encode())
    returned, out, err = other.asked("status", "--json", "--max-age", "26h")
    assert (returned, round(json.loads(out)["age_s"] / 86_400)) == (1, 3)
    assert f"the last success in {project.url} is 3.0 d ago" in err
