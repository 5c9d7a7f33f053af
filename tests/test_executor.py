"""Calling steps: tried again where the disk or the network failed for a while, and timed."""

import errno
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from threading import Barrier

import duckdb
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from kp_batch import executor
from kp_batch.clock import Clock
from kp_batch.errors import ArchiveError, StorageError
from kp_batch.executor import Local, Step, Timed
from kp_batch.progress import progress


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were slept, which take no time."""
    seconds: list[float] = []
    monkeypatch.setattr(executor.time, "sleep", seconds.append)
    return seconds


def failing(*errors: Exception) -> tuple[Callable[[int], int], list[int]]:
    """A function that fails with these errors before it works, and the inputs it was given."""
    left, calls = list(errors), []

    def work(number: int) -> int:
        calls.append(number)
        if left:
            raise left.pop(0)
        return number + 1

    return work, calls


def test_a_step_is_tried_again_after_growing_delays_and_says_so(
    waited: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    work, calls = failing(ConnectionResetError(), TimeoutError("slow"), OSError(errno.EIO, "torn"))
    assert Local().call(Step("read", work), 1) == 2
    assert calls == [1, 1, 1, 1]
    assert waited == [5.0, 60.0, 300.0]
    assert caplog.messages == [
        "read failed, and is tried again in 5 s: ConnectionResetError",
        "read failed, and is tried again in 60 s: slow",
        "read failed, and is tried again in 300 s: [Errno 5] torn",
    ]


def test_a_task_of_prefect_is_tried_again_like_any_step(waited: list[float]) -> None:
    from kp_batch.executors.prefect import _task

    work, calls = failing(OSError(errno.EIO, "torn"))
    assert _task(Step("report", work)).fn(1) == 2
    assert (calls, waited) == ([1, 1], [5.0])


def test_parts_that_were_tried_to_the_end_are_not_tried_again_by_what_maps_them(
    waited: list[float],
) -> None:
    work, calls = failing(*[TimeoutError("slow")] * 9)
    part = Step("part", work)
    whole = Step("whole", lambda: list(Local().map(part, [1])))
    message = "part failed 4 times in 6 minutes, the last time with: slow; run again when"
    with pytest.raises(StorageError, match=message):
        Timed(Local(), Clock()).call(whole)
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
        Local().call(Step("read", work), 1)
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
    assert Local().call(Step("read", work), 1) == 2
    assert calls == [1, 1]


def threads_of_blas() -> list[int]:
    np.ones((2, 2)) @ np.ones((2, 2))  # it loads the library
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_as_many_parts_at_once_as_there_are_cores_and_memory_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor.pl, "thread_pool_size", lambda: 4)
    monkeypatch.setattr(executor, "available_bytes", lambda: 3 << 30)
    for memory, expected in ((1, 4), (1 << 30, 3), (2 << 30, 1), (9 << 30, 1)):
        together = Barrier(expected)

        def work(part: int, together: Barrier = together) -> tuple[int, list[int]]:
            together.wait(60)  # for ever, if there are fewer at once
            return part, threads_of_blas()

        found = list(Local().map(Step("work", work, memory), range(12)))
        assert found == [(part, [4 // expected] * len(found[0][1])) for part in range(12)]
        assert found[0][1]


def test_fewer_parts_than_cores_share_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor.pl, "thread_pool_size", lambda: 4)

    step = Step("work", lambda _: set(threads_of_blas()))
    assert list(Local().map(step, [1])) == [{4}]
    assert list(Local().map(step, [])) == []


def test_after_an_error_no_further_part_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor.pl, "thread_pool_size", lambda: 2)
    begun: list[int] = []

    def work(part: int) -> int:
        begun.append(part)
        if part == 1:
            raise ArchiveError("none")
        if part:
            time.sleep(0.5)  # all of them take minutes: longer than to see the error
        return part

    mapped = Local().map(Step("work", work), range(1_000))
    assert next(mapped) == 0
    with pytest.raises(ArchiveError, match="none"):
        next(mapped)
    assert len(begun) < 1_000


def test_what_is_told_within_a_part_is_told_in_the_context_of_the_run() -> None:
    run = ContextVar("run")
    run.set("this one")
    assert list(Local().map(Step("look", lambda _: run.get()), [1, 2, 3])) == ["this one"] * 3


def test_the_seconds_of_each_step_are_noted_even_if_it_fails() -> None:
    clock = Clock()
    call = Timed(Local(), clock).call
    assert call(Step("add", failing()[0]), 1) == 2
    with pytest.raises(ArchiveError):
        call(Step("fail", failing(ArchiveError("none"))[0]), 1)
    assert list(clock.seconds) == ["start", "add", "fail"]


CALLS = """
from pathlib import Path
from kp_batch.executor import Executor, Step

def count(source: Path, least: int) -> str:
    return f"{source}{least}"

COUNT = Step("count", count)

def calls(executor: Executor) -> None:
    one: str = executor.call(COUNT, Path(), 1)
    several: list[str] = list(executor.map(COUNT, [Path()], 1))
    executor.call(COUNT, 1, Path())  # wrong
    executor.call(COUNT, Path())  # wrong
    executor.map(COUNT, ["a path"], 1)  # wrong
    executor.map(COUNT, [Path()], "1")  # wrong
    number: int = executor.call(COUNT, Path(), 1)  # wrong
    print(one, several, number)
"""


def test_the_arguments_and_the_results_of_steps_are_checked_by_their_types(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(CALLS)
    pyright = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*pyright, str(snippet)], capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)["generalDiagnostics"]
    lines = {each["range"]["start"]["line"] for each in told if each["severity"] == "error"}
    assert lines == {row for row, text in enumerate(CALLS.split("\n")) if "# wrong" in text}


@pytest.mark.parametrize(
    ("total", "told"), [(1, "reading: 1 file"), (1_000, "reading: 1,000 files")]
)
def test_progress_counts_in_the_singular_and_the_plural(
    caplog: pytest.LogCaptureFixture, total: int, told: str
) -> None:
    caplog.set_level("INFO", "kp_batch")
    with progress("reading", total, "file"):
        pass
    assert caplog.messages == [told]
