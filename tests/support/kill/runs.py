"""Runs, previews and rollbacks killed at random moments, while a reader looks: `make torture`.

Some runs have audits. After every kill the archive's next run has to leave the tables that the
documentation states, and no working files; a preview has to leave what was published; and
whoever reads meanwhile, with DuckDB alone or with kp_batch, sees tables that belong together, and
never an error.
In a bucket, each run is of one of two machines, and who comes new to it sees the same tables.
"""

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse import lock
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.bucket.mirror import refresh
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.publication import writing
from kp_batch.warehouse.snapshot import published
from tests.support.kill.imports import torture_imports
from tests.support.make.sample import write_sample
from tests.support.oracle.accepted_rows import File, observed
from tests.support.oracle.tables import assert_lawful
from tests.support.processes.buckets import Machine, make_bucket, s3_server

# The work of a run alone; the command line does the same in a child process, or under Prefect.
_ALONE = """
import json, sys
from kp_batch.operations.preview import preview
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.config import RescoreConfig
config = RescoreConfig(**json.loads(sys.argv[1]))
print("begun", flush=True)
(preview if config.preview else rescore_archive)(config)
"""
_BACK = """
import sys
from pathlib import Path
from kp_batch.operations.rollback import rollback
print("begun", flush=True)
rollback(Path(sys.argv[1]), sys.argv[2])
"""
# Reads until its stdin ends; every answer has to be of tables that one run left together.
_READER = """
import sys, threading, duckdb
from pathlib import Path
from kp_batch.warehouse.bucket.location import folder_of, url_of
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.bucket.mirror import refresh
warehouse = Path(folder_of(sys.argv[1]))
def ours():
    refresh(warehouse)
    return connect(warehouse)
def plain():
    return duckdb.connect(str(warehouse / "kp.duckdb"), read_only=True)
ways = {"ours": ours} if url_of(warehouse) else {"ours": ours, "plain": plain}
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
reads = 0
query = '''
    SELECT
        (SELECT count(*) FROM scores),
        (SELECT (counts->>'accepted')::BIGINT FROM runs WHERE status = 'done'
            ORDER BY started_at DESC LIMIT 1),
        (SELECT count(*) FROM scores ANTI JOIN profiles USING (profile_id)),
        (SELECT count(*) FROM scores ANTI JOIN files USING (source_file)),
        (SELECT count(*) FROM scores ANTI JOIN runs USING (run_id)),
        (SELECT count(*) FROM rejects ANTI JOIN files USING (source_file)),
        (SELECT count(*) FROM runs)
'''
runs = dict.fromkeys(ways, 0)
while not ended.is_set():
    for way, opened in ways.items():
        with opened() as connection:
            scores, accepted, *loose, later = connection.execute(query).fetchall()[0]
        state = way, scores, accepted, loose, later
        assert scores == accepted and not any(loose) and later >= runs[way], state
        runs[way] = later
    reads += 1
    ended.wait(0.1)  # else it takes a whole core from those that it looks at
print(reads)
"""


# How runs are started in turn, and for how many seconds they may live.
_WAYS = ("alone", "back", "look", "no-prefect", "alone", "back", "look", "prefect")
_LONGEST_S = {"alone": 0.8, "back": 0.8, "look": 1.2, "no-prefect": 3.0, "prefect": 12.0}
_PASS = {"loose": {"sql": "FROM scores ANTI JOIN files USING (source_file)"}}
_FAIL = {"any": {"sql": "FROM scores"}, "moved": {"sql": "FROM published.scores"}}


class KilledRuns:
    """An archive of one file a day out of a pool, changed at random before every run."""

    def __init__(self, folder: Path, warehouse: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.machines = [Machine(folder / name, warehouse) for name in ("first", "second")]
        self.newcomer = Machine(folder / "newcomer", warehouse)
        self.folder, self.archive = folder, folder / "archive"
        self.pool = write_sample(folder / "pool", traces=240, days=12, seed=seed, dirty=0.03)
        self.settings: dict[str, Any] = {}
        self.files: dict[str, File] = {}
        self.published: dict[str, Any] = {}  # the content of each trace
        self.left: dict[str, tuple[dict[str, File], dict[str, Any]]] = {}  # both, by runs
        self.archive.mkdir()
        for _ in range(4):
            self.add()
        self.finish()

    def add(self) -> None:
        """A day's file, or its content under another day's name."""
        content = self.random.choice(self.pool).read_bytes()
        (self.archive / self.random.choice(self.pool).name).write_bytes(content)

    def change(self) -> None:
        self.add()
        present = sorted(self.archive.iterdir())
        if len(present) > 4:
            self.random.choice(present).unlink()
        self.settings = {
            "cache_size": self.random.choice([5, 40]),
            "ttl": self.random.choice(["none", "1d"]),
            "threshold": self.random.choice([0.5, 0.75]),
            "audits": self.random.choice([{}, _PASS]),
        }

    def config(
        self, warehouse: Path, changes: Mapping[str, Any] = MappingProxyType({})
    ) -> RescoreConfig:
        usual = {"embedder": "hashing", "max_reject_share": 1, "max_removed": "100%"}
        where = {"archive": (str(self.archive),), "warehouse": warehouse}
        return RescoreConfig.model_validate({**usual, **where, **self.settings, **changes})

    def command(self, way: str, warehouse: Path) -> list[str]:
        if way == "back":
            return [sys.executable, "-c", _BACK, str(warehouse), self.random.choice([*self.left])]
        if way in {"alone", "look"}:
            audits = self.random.choice([_PASS, _FAIL])
            looks = {"preview": True, "audits": audits} if way == "look" else {}
            return [sys.executable, "-c", _ALONE, self.config(warehouse, looks).model_dump_json()]
        settings = {**self.settings, "audits": "none"}
        options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        where = ["--warehouse", shown(warehouse), "--embedder", "hashing"]
        rest = ["--max-reject-share", "1", "--max-removed", "100%", f"--{way}", *options]
        return [sys.executable, "-m", "kp_batch", "run", str(self.archive), *where, *rest]

    def kill(self, way: str) -> bool:
        """Start a run and kill it after a while; whether it still ran then."""
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with self.random.choice(self.machines).here() as warehouse:
            refresh(warehouse)
            before = read_manifest(warehouse)
            with subprocess.Popen(self.command(way, warehouse), **output) as run:
                assert run.stdout
                if way in {"alone", "back", "look"}:
                    run.stdout.readline()  # what is killed is the work, not the imports
                time.sleep(self.random.uniform(0, _LONGEST_S[way]))
                run.send_signal(signal.SIGKILL)
            refresh(warehouse)
            assert way != "look" or read_manifest(warehouse) == before
        return run.returncode == -signal.SIGKILL

    def finish(self) -> None:
        """The run that comes after, and the law, as whoever comes new sees it."""
        with self.random.choice(self.machines).here() as warehouse:
            wait = {"wait": timedelta.max}  # for what a killed one started
            self.follow(warehouse)
            rescore_archive(self.config(warehouse).model_copy(update=wait))
            assert not [*Layout(warehouse).all_staging.glob("*")]
        present = {str(path): path.read_bytes() for path in self.archive.iterdir()}
        self.files = observed(self.files, present, prune=False)
        shutil.rmtree(self.newcomer.cache, ignore_errors=True)
        with self.newcomer.here() as warehouse:
            refresh(warehouse)
            count = assert_lawful(self.config(warehouse), self.files, published=self.published)
            self.published = count.published
            [latest] = published(warehouse).find_runs("latest")
            self.left[latest.run_id] = self.files, self.published

    def follow(self, warehouse: Path) -> None:
        """What is published, where the last one that is done was a rollback."""
        if self.left:
            with writing(warehouse, wait=60):  # what a killed one started has ended
                [latest] = published(warehouse).find_runs("latest")
            change, *_ = latest.changes
            if change["code"] == "rollback":
                self.files, self.published = self.left[change["new"]]


@contextmanager
def reading(warehouse: str) -> Generator[None]:
    """Somebody reads what is published all the while, again and again."""
    with subprocess.Popen(
        [sys.executable, "-c", _READER, warehouse],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as reader:
        try:
            yield
        finally:
            printed, complaints = reader.communicate(timeout=60)
    assert reader.returncode == 0, complaints
    assert int(printed) > 0


def torture(folder: Path, warehouse: str, kills: int, seed: int) -> int:
    """Kill so many runs, in every way that there is; how many still ran."""
    nights = KilledRuns(folder, warehouse, seed)
    killed = 0
    with Machine(folder / "reader", warehouse).here(), reading(warehouse):
        for number in range(kills):
            nights.change()
            killed += nights.kill(_WAYS[number % len(_WAYS)])
            nights.finish()
    return killed


def torture_in_bucket(folder: Path, kills: int, seed: int) -> int:
    """Kill runs on a bucket, whose notice stops no later one."""
    with s3_server() as address, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "NOTICE_TTL_S", -1)
        return torture(folder, make_bucket(address, "kept"), kills, seed)


def _torture(name: str, kills: int, how: Callable[[Path, int, int], int]) -> None:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        killed = how(Path(folder), kills, int(time.time()))
    seconds = time.monotonic() - begun
    print(f"{name}: {kills} tries, {killed} killed at work, all lawful, {seconds:.0f} s")  # noqa: T201


if __name__ == "__main__":
    wanted = int(sys.argv[1])
    _torture("disk", wanted, lambda folder, *how: torture(folder, f"{folder}/warehouse", *how))
    _torture("bucket", wanted // 2, torture_in_bucket)
    _torture("imports", wanted, torture_imports)
