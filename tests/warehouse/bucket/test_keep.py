"""Nights with `keep` in a bucket, while another machine publishes there, and not always waits."""

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

import kp_batch as kp
from kp_batch.errors import BusyError
from kp_batch.operations.kept_runs import available_runs
from kp_batch.report.run_summary import Summary
from kp_batch.warehouse import lock
from kp_batch.warehouse.bucket.mirror import refresh
from kp_batch.warehouse.snapshot import published
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.kept import frames_of
from tests.support.oracle.tables import assert_same
from tests.support.processes.buckets import Machine

pytestmark = [pytest.mark.process, pytest.mark.slow]

NIGHTS = 6
PAUSE_S = 0.1  # between attempts; nights wait 20 s, and another may then always be first
PUBLISHER = """
import sys
from pathlib import Path
from tests.support.processes.buckets import Machine
from tests.warehouse.bucket.test_keep import publish_until_told
publish_until_told(Machine(Path(sys.argv[1]), sys.argv[2]), Path(sys.argv[3]))
"""


def night(machine: Machine, archive: Path, name: str, keep: str | None = None) -> Summary:
    """Add a file, and run until no other writer is first."""
    write_jsonl(archive / f"{name}.jsonl", [trace(id=name, objective=f"do {name}")])
    with machine.here():
        while True:
            try:
                warehouse = kp.Warehouse(machine.url)
                return warehouse.run(archive, embedder="hashing", keep=keep)
            except BusyError:
                time.sleep(PAUSE_S)


def publish_until_told(machine: Machine, archive: Path) -> None:
    """Publish night after night, until a file says that it is enough.

    It waits for other writers twice of three times; else, as if they had begun long ago, it does
    not.
    """
    for number in count():
        lock.NOTICE_TTL_S = 3_600 if number % 3 else -1
        if archive.with_name("enough").exists():
            return
        night(machine, archive, f"other-{number}")
        print(number, flush=True)  # noqa: T201 (read by the test)
        time.sleep(3 * PAUSE_S)


@contextmanager
def publishing(machine: Machine, archive: Path) -> Generator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", PUBLISHER, str(machine.cache), machine.url, str(archive)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_all(machine: Machine) -> int:
    """Read all tables, and those of each run that can be read; returns how many runs can."""
    with machine.here() as folder:
        refresh(folder)
        now = published(folder)
        assert now.is_whole
        readable = available_runs(folder).restorable
        for snapshot in (now, *(now.as_of(*now.find_runs(run)) for run in readable)):
            assert len(frames_of(snapshot)["scores"]) > 0
        return len(readable)


def test_a_night_removes_nothing_that_another_machine_publishes(
    tmp_path: Path, bucket: str
) -> None:
    url, archive, removed = f"{bucket}/warehouse", tmp_path / "archive", 0
    keeper, other = Machine(tmp_path / "keeper", url), Machine(tmp_path / "other", url)
    night(keeper, archive, "first")
    with publishing(other, archive) as process:
        for number in range(NIGHTS):
            done = night(keeper, archive, f"mine-{number}", keep="1s")
            removed += bool(done.removed and done.removed.lost)
            assert read_all(Machine(tmp_path / f"reader-{number}", url)) > 0
        (tmp_path / "enough").touch()
        printed, _ = process.communicate(timeout=120)
        assert process.returncode == 0
    others = len(printed.split())
    assert min(others, removed) > NIGHTS // 3
    night(keeper, archive, "last", keep="1s")
    kp.Warehouse(tmp_path / "alone").run(archive, embedder="hashing")
    with keeper.here() as folder:
        assert_same(folder, tmp_path / "alone")
        assert published(folder).scan("scores").collect().height == others + NIGHTS + 2
