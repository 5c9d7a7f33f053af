"""Steps are timed, tried again where the disk or the network failed, and mapped over parts."""

import errno
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from threadpoolctl import threadpool_info

from kp_batch.errors import ArchiveError, StorageError
from kp_batch.log import progress
from kp_batch.steps import step as steps
from kp_batch.steps.step import Clock, Step, ThreadExecutor, step, step_seconds, timed
from tests.support import ROOT


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were slept, which take no time."""
    seconds: list[float] = []
    monkeypatch.setattr(steps, "pause", seconds.append)
    return seconds


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test moves."""
    clock = [1000.0]
    monkeypatch.setattr(steps.time, "time", lambda: clock[0])
    monkeypatch.setattr(steps.time, "monotonic", lambda: clock[0] - 900)
    return clock


def failing(*errors: Exception) -> tuple[Callable[[int], int], list[int]]:
    """A function that fails with these errors before it works, and the inputs it was given."""
    remaining, calls = list(errors), []

    def work(number: int) -> int:
        calls.append(number)
        if remaining:
            raise remaining.pop(0)
        return number + 1

    return work, calls


def test_a_step_is_tried_again_after_growing_delays_and_says_so(
    waited: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    work, calls = failing(ConnectionResetError(), TimeoutError("slow"), OSError(errno.EIO, "torn"))
    assert Step("read", work)(1) == 2
    assert calls == [1, 1, 1, 1]
    assert waited == [5.0, 60.0, 300.0]
    assert caplog.messages == [
        "read failed; the next attempt is in 5 s: ConnectionResetError",
        "read failed; the next attempt is in 60 s: slow",
        "read failed; the next attempt is in 300 s: [Errno 5] torn",
    ]


@pytest.mark.telling
@pytest.mark.prefect
def test_a_task_of_prefect_is_tried_again_like_any_step(waited: list[float]) -> None:
    from kp_batch.flows.tasks import _as_tasks

    work, calls = failing(OSError(errno.EIO, "torn"))
    tasks: list[Any] = []

    def called(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        tasks.append(_as_tasks(Clock())(name, function).__wrapped__)
        return tasks[0].fn

    with timed(caller=called):
        assert Step("report", work)(1) == 2
    assert (calls, waited, tasks[0].name) == ([1, 1], [5.0], "report")


def test_parts_that_were_tried_to_the_end_are_not_tried_again_by_what_maps_them(
    waited: list[float],
) -> None:
    work, calls = failing(*[TimeoutError("slow")] * 9)
    part = Step("part", work)
    whole = Step("whole", lambda: list(ThreadExecutor().map(part, [1])))
    message = "part failed 4 times in 6 minutes, the last time with: slow; run again when"
    with timed(), pytest.raises(StorageError, match=message):
        whole()
    assert (calls, waited) == ([1] * 4, [5.0, 60.0, 300.0])


@pytest.mark.parametrize(
    "error",
    [
        ArchiveError("none"),
        ArchiveError("a.parquet: Input/output error"),
        FileNotFoundError(errno.ENOENT, "gone"),
        OSError(errno.ENOSPC, "full"),
        OSError("the file is damaged"),
        PermissionError(errno.EACCES, "no"),
        ValueError("wrong"),
    ],
    ids=str,
)
def test_what_another_try_cannot_mend_is_not_tried_again(error: Exception) -> None:
    work, calls = failing(error)
    with pytest.raises(type(error)):
        Step("read", work)(1)
    assert calls == [1]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ESTALE, "stale"),
        OSError("Stale file handle (os error 116)"),  # as Polars says it
        duckdb.IOException("Could not read from file: Input/output error"),
    ],
    ids=str,
)
def test_what_may_pass_is_known_by_its_number_or_by_its_words(error: Exception) -> None:
    work, calls = failing(error)
    assert Step("read", work)(1) == 2
    assert calls == [1, 1]


def threads_of_blas() -> list[int]:
    np.ones((2, 2)) @ np.ones((2, 2))  # it loads the library
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_as_many_parts_at_once_as_there_are_cores_and_memory_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: 4)
    monkeypatch.setattr("kp_batch.duck.available_bytes", lambda: 3 << 30)
    for memory, expected in ((1, 4), (1 << 30, 3), (2 << 30, 1), (9 << 30, 1)):
        together = Barrier(expected)

        def work(part: int, together: Barrier = together) -> tuple[int, list[int]]:
            together.wait(60)  # for ever, if there are fewer at once
            return part, threads_of_blas()

        results = list(ThreadExecutor().map(Step("work", work, memory), range(12)))
        assert results == [(part, [4 // expected] * len(results[0][1])) for part in range(12)]
        assert results[0][1]


def test_fewer_parts_than_cores_share_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: 4)

    step = Step("work", lambda _: set(threads_of_blas()))
    assert list(ThreadExecutor().map(step, [1])) == [{4}]
    assert list(ThreadExecutor().map(step, [])) == []


def test_after_an_error_no_further_part_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: 2)
    begun: list[int] = []
    never = Event()

    def work(part: int) -> int:
        begun.append(part)
        if part == 1:
            raise ArchiveError("none")
        if part:
            never.wait(0.5)  # all of them take minutes: longer than to see the error
        return part

    mapped = ThreadExecutor().map(Step("work", work), range(1_000))
    assert next(mapped) == 0
    with pytest.raises(ArchiveError, match="none"):
        next(mapped)
    assert len(begun) < 1_000


def test_of_an_iterator_no_more_parts_are_taken_than_are_worked_on_and_a_few_ahead() -> None:
    taken: list[int] = []

    def parts() -> Iterator[int]:
        for part in range(1_000):
            taken.append(part)
            yield part

    mapped = ThreadExecutor(cores=3).map(Step("work", lambda part: -part, 1), parts())
    for result in range(100):
        assert next(mapped) == -result
        assert len(taken) <= result + 1 + 3 * steps.AHEAD
    begun = threading.active_count()
    mapped.close()
    assert threading.active_count() < begun
    again = ThreadExecutor(cores=3).map(Step("work", lambda part: -part, 1), parts())
    assert list(again) == [-part for part in range(1_000)]


def test_a_step_may_have_lanes_of_its_own_whatever_the_cores() -> None:
    together = Barrier(3)
    part = Step("work", lambda part: (together.wait(60), part)[1], 1, at_once=3)
    assert list(ThreadExecutor(cores=1).map(part, iter(range(6)))) == [0, 1, 2, 3, 4, 5]


def test_a_part_is_done_in_the_context_of_the_run() -> None:
    run = ContextVar("run")
    run.set("this one")
    assert (
        list(ThreadExecutor().map(Step("look", lambda _: run.get()), [1, 2, 3])) == ["this one"] * 3
    )


def test_the_seconds_of_each_step_are_noted_even_if_it_fails() -> None:
    with timed() as clock:
        assert Step("add", failing()[0])(1) == 2
        with pytest.raises(ArchiveError):
            Step("fail", failing(ArchiveError("none"))[0])(1)
        assert list(clock.seconds) == ["start", "add", "fail"]


def test_a_step_within_another_one_is_a_part_of_it(now: list[float]) -> None:
    called: list[str] = []

    def caller(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        called.append(name)
        return function

    @step("inner")
    def inner() -> None:
        now[0] += 2

    @step("outer")
    def outer() -> None:
        now[0] += 1
        inner()
        list(ThreadExecutor().map(Step("part", lambda _: inner()), [1]))

    with timed(999, caller), timed() as clock:
        outer()
        inner()
    assert clock.seconds == {"start": 1, "outer": 5, "inner": 2}
    assert called == ["outer", "inner"]
    outer()  # after the run
    assert sum(clock.seconds.values()) == 8 + 5


def test_parts_that_are_mapped_outside_of_steps_count_as_what_maps_them() -> None:
    with timed() as clock:
        assert list(ThreadExecutor().map(Step("part", lambda part: part), [1, 2])) == [1, 2]
    assert list(clock.seconds) == ["start"]


@step("reading")
def read(name: str) -> str:
    return name * 2


def test_a_step_is_pickled_by_its_name() -> None:
    larger = pickle.dumps(replace(read, memory=1 << 60))
    assert len(larger) < 200
    assert pickle.loads(larger) is read


def test_each_second_counts_for_the_innermost_thing_alone(now: list[float]) -> None:
    clock = Clock(began=998.0)  # by another process
    now[0] += 1
    with clock.on("prefect"):
        now[0] += 4
        with clock.on("read"):
            now[0] += 8
        now[0] += 16
        with clock.on("start"):
            now[0] += 32
    now[0] += 64
    assert clock.seconds == {"start": 2 + 1 + 32 + 64, "prefect": 4 + 16, "read": 8}
    assert sum(clock.seconds.values()) == now[0] - 998
    assert step_seconds(clock.seconds) == {"read": 8}


def test_a_thing_that_fails_has_its_seconds_and_one_that_goes_on_those_so_far(
    now: list[float],
) -> None:
    clock = Clock()

    @clock.on("read")
    def fail() -> None:
        now[0] += 1
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    with clock.on("plan"):
        now[0] += 2
        assert clock.seconds == {"start": 0, "read": 1, "plan": 2}


CALLS = """
from pathlib import Path
from kp_batch.steps.step import Executor, step

@step("count")
def count(source: Path, /, least: int) -> str:
    return f"{source}{least}"

def calls(executor: Executor) -> None:
    one: str = count(Path(), 1)
    several: list[str] = list(executor.map(count, [Path()], 1))
    count(1, Path())  # wrong
    count(Path())  # wrong
    executor.map(count, ["a path"], 1)  # wrong
    executor.map(count, [Path()], "1")  # wrong
    number: int = count(Path(), 1)  # wrong
    print(one, several, number)
"""


@pytest.mark.telling
@pytest.mark.process
def test_the_arguments_and_the_results_of_steps_are_checked_by_their_types(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(CALLS)
    pyrefly = [sys.executable, "-m", "pyrefly", "check", "--output-format=json", "--summary=none"]
    settings = [
        f"--config={ROOT / 'pyproject.toml'}",
        f"--python-interpreter-path={sys.executable}",
    ]
    done = subprocess.run(
        [*pyrefly, *settings, str(snippet)], capture_output=True, text=True, check=False
    )
    lines = {error["line"] for error in json.loads(done.stdout)["errors"]}
    assert lines == {row for row, text in enumerate(CALLS.split("\n"), 1) if "# wrong" in text}


@pytest.mark.parametrize(
    ("total", "message"), [(1, "reading: 1 file"), (1_000, "reading: 1,000 files")]
)
def test_progress_counts_in_the_singular_and_the_plural(
    caplog: pytest.LogCaptureFixture, total: int, message: str
) -> None:
    caplog.set_level("INFO", "kp_batch")
    with progress("reading", total, "file"):
        pass
    assert caplog.messages == [message]
