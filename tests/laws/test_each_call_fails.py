"""Each call of a command to the disk, or to its bucket, fails: once, or it and all later ones.

What is published is then whole: as it was before the command, or as it is after it. The command
reports the failure with a path, unless all of its work is done. Repeated without faults, it leaves
what it leaves undisturbed. `make torture` tries each call, and all other lanes a few, by chance.
"""

import shutil
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from subprocess import CompletedProcess
from typing import Any

import pytest

from kp_batch.warehouse.bucket.mirror import refresh
from kp_batch.warehouse.snapshot import published
from tests.support.faults.buckets import MemoryBucket, bucket_in_memory
from tests.support.faults.calls import Calls, failing_calls, failing_requests
from tests.support.faults.histories import (
    HISTORIES,
    History,
    State,
    assert_readable_by_others,
    own_places,
)
from tests.support.processes.buckets import Machine
from tests.support.processes.commands import invoke
from tests.support.read.folders import keep, restore

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("waited")]

# The commands, and how many calls and requests each makes, at the least.
LEAST_CALLS = {
    "run": 500,
    "rollback": 300,
    "vacuum": 300,
    "forget": 600,
    "migrate": 400,
    "import": 100,
}
LEAST_REQUESTS = {"run": 30, "vacuum": 30, "forget": 40, "migrate": 40}
ALL = 10_000  # more than there are
Failing = Callable[[int], AbstractContextManager[Calls]]


@dataclass(frozen=True)
class Trial:
    """A history, and how to go back to it, to read what is there, and to let calls fail."""

    words: list[object]
    place: str  # a message names something in it
    back: Callable[[], None]
    seen: Callable[[], State]
    ways: tuple[Failing, ...]

    def try_some(self, most: int, least_calls: int) -> int:
        """Let calls fail, in an order by chance; returns how many failed."""
        before = self.seen()
        self.back()
        with self.ways[0](0) as calls:
            assert invoke(*self.words).returncode == 0
        after, number = self.seen(), len(calls.made)
        assert number >= least_calls
        numbers = Random(7).sample(range(1, number + 1), min(most, number))
        return sum(
            self._try(each, way, before, after)
            for place, each in enumerate(numbers)
            for way in self._ways(place, most)
        )

    def _ways(self, place: int, most: int) -> tuple[Failing, ...]:
        """All ways of failing if each call is tried, and otherwise one in turn."""
        return self.ways if most >= ALL else (self.ways[place % len(self.ways)],)

    def _try(self, number: int, way: Failing, before: State, after: State) -> bool:
        self.back()
        with way(number) as calls:
            done = invoke(*self.words)
        if calls.failed is None:  # threads made fewer calls this time
            return False
        where = f"call {number}, {calls.failed}, {way}: {done.stderr}"
        self._assert_whole(done, before, after, where)
        healed = invoke(*self.words)
        assert healed.returncode == 0, f"{where}\n{healed.stderr}"
        assert self.seen() == after, where
        return True

    def _assert_whole(
        self, done: CompletedProcess[str], before: State, after: State, where: str
    ) -> None:
        now = self.seen()
        for name in {*before, *after}:
            assert now.get(name) in (before.get(name), after.get(name)), f"{name}: {where}"
        assert "unexpected" not in done.stderr, where
        if done.returncode == 0:
            assert now == after, where
        else:
            assert self.place in done.stderr, where


def _make(history: History, folder: Path, warehouse: str) -> None:
    for name in ("archive", "cache", "tmp"):
        (folder / name).mkdir(parents=True)
    history.make(folder, warehouse)
    keep(folder)


def _on_disk(name: str, folder: Path) -> Trial:
    history, warehouse = HISTORIES[name], folder / "warehouse"
    _make(history, folder, str(warehouse))

    def seen() -> State:
        state = history.state(warehouse)
        if "others" in state:
            assert_readable_by_others(warehouse)
        return state

    return Trial(
        words=[*history.command(str(warehouse), folder)],
        place=str(folder),
        back=lambda: restore(folder),
        seen=seen,
        ways=(
            partial(failing_calls, folder),
            partial(failing_calls, folder, for_good=True),
        ),
    )


def _in_bucket(name: str, folder: Path, bucket: MemoryBucket) -> Trial:
    history, url = HISTORIES[name], bucket.url
    _make(history, folder, url)
    kept = bucket.contents()

    def back() -> None:
        restore(folder)
        shutil.rmtree(folder / "cache")  # another machine, which has no copy yet
        bucket.fill(kept)

    def seen() -> State:
        shutil.rmtree(folder / "other", ignore_errors=True)
        with Machine(folder / "other", url).here() as copy:
            refresh(copy)
            return history.state(copy)

    return Trial(
        words=[*history.command(url, folder)],
        place="s3://",
        back=back,
        seen=seen,
        ways=(
            failing_requests,
            partial(failing_requests, for_good=True),
            partial(failing_requests, is_lost=True),
        ),
    )


def lanes(names: Iterable[str], some: int) -> list[Any]:
    """Return how many calls to try of each command: some, and under `torture` all."""
    every = [pytest.mark.torture, pytest.mark.timeout(0)]
    return [
        *(pytest.param(name, some, id=f"{name}-some") for name in names),
        *(pytest.param(name, ALL, id=f"{name}-all", marks=every) for name in names),
    ]


@pytest.mark.parametrize(("name", "most"), lanes(LEAST_CALLS, 3))
def test_a_call_to_the_disk_that_fails_does_no_harm(tmp_path: Path, name: str, most: int) -> None:
    folder = tmp_path / "made"
    with own_places(folder):
        trial = _on_disk(name, folder)
        some = most * (8 if name == "import" else 1)  # imports are fast
        assert trial.try_some(some, LEAST_CALLS[name]) > 1


@pytest.mark.parametrize(("name", "most"), lanes(LEAST_REQUESTS, 3))
def test_a_request_to_a_bucket_that_fails_does_no_harm(
    tmp_path: Path, name: str, most: int
) -> None:
    folder = tmp_path / "made"
    with own_places(folder), bucket_in_memory() as bucket:
        assert _in_bucket(name, folder, bucket).try_some(most, LEAST_REQUESTS[name]) > 1


def test_a_run_whose_staged_table_is_half_written_has_its_row_in_runs(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with own_places(folder):
        trial = _on_disk("run", folder)
        with failing_calls(folder) as calls:
            assert invoke(*trial.words).returncode == 0
        names = [what == "polars" and "/files.parquet" in path for what, path in calls.made]
        trial.back()
        with failing_calls(folder, 1 + names.index(True)):
            assert "no row in runs" not in invoke(*trial.words).stderr
    assert [run.status for run in published(folder / "warehouse").runs()] == ["done", "failed"]


def test_a_machine_whose_first_command_fails_does_not_wait_for_itself(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with own_places(folder), bucket_in_memory() as bucket:
        trial = _in_bucket("run", folder, bucket)
        trial.back()
        with failing_requests(4, for_good=True) as calls:  # after it has left its notice
            assert invoke(*trial.words).returncode == 1
        assert "kp.lock" in calls.made[1][1]
        assert invoke(*trial.words).returncode == 0
