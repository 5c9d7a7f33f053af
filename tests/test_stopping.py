"""Parts end when nobody waits for them; Ctrl-C ends a call, whatever library is at work."""

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from kp_batch import stopping
from kp_batch.duck import small_work
from kp_batch.files import atomic_write
from kp_batch.steps.step import Step, ThreadExecutor
from kp_batch.stopping import (
    UnwantedError,
    interruptible,
    parts_in_threads,
    pause,
    raise_if_unwanted,
    result_of,
    waited_for,
)
from kp_batch.warehouse.staging import Staging

# A query that takes a minute, and next to no memory.
LONG = "SELECT count(*) FROM range(100_000_000) a, range(100) b WHERE hash(a.range, b.range) = 3"
SOON_S = 0.05


_before: set[int | None] = set()  # threads that another test may have left to end by themselves


@pytest.fixture(autouse=True)
def others() -> None:
    _before.clear()
    _before.update(each.ident for each in threading.enumerate())


def at_work() -> list[str]:
    """The threads of parts, once those have ended that are about to."""
    until = time.monotonic() + 2
    while True:
        began = (each for each in threading.enumerate() if each.ident not in _before)
        found = [each.name for each in began if "ThreadPool" in each.name]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.005)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def interrupted_soon() -> Generator[None]:
    """Press Ctrl-C while the work within is at work."""
    timer = threading.Timer(SOON_S, interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def work_for_ever(_: object) -> None:
    while True:
        raise_if_unwanted()
        time.sleep(0.001)


def fail(number: int) -> int:
    if number:
        work_for_ever(number)
    raise ValueError("of a part")


def test_parts_end_when_another_one_has_failed() -> None:
    with pytest.raises(ValueError, match="of a part"):
        [*ThreadExecutor(3).map(Step("part", fail), [0, 1, 2])]
    assert not at_work()


def test_parts_end_when_whoever_takes_their_results_leaves() -> None:
    part = Step("part", lambda number: work_for_ever(number) if number else number)

    def take() -> None:
        with closing(ThreadExecutor(2).map(part, [0, 1, 2])) as results:
            for _ in results:
                raise KeyError

    with pytest.raises(KeyError):
        take()
    assert not at_work()


def map_parts() -> None:
    [*ThreadExecutor(2).map(Step("part", work_for_ever), [0, 1, 2])]


def map_what_another_mapping_gives() -> None:
    executor = ThreadExecutor(2)
    first = Step("first", lambda number: number if not number else work_for_ever(number) or 0)
    [*executor.map(Step("second", work_for_ever), executor.map(first, iter([0, 1])))]


def map_parts_of_a_part() -> None:
    inner = Step("inner", work_for_ever)
    outer = Step("outer", lambda _: [*ThreadExecutor(2).map(inner, [0, 1])])
    [*ThreadExecutor(1).map(outer, [0, 1])]


@pytest.mark.parametrize("call", [interruptible, lambda work: work])
@pytest.mark.parametrize("work", [map_parts, map_what_another_mapping_gives, map_parts_of_a_part])
def test_parts_end_on_ctrl_c(
    work: Callable[[], None], call: Callable[[Callable[[], None]], Callable[[], None]]
) -> None:
    with pytest.raises(KeyboardInterrupt), interrupted_soon():
        call(work)()
    assert not at_work()


def test_a_part_that_waits_for_another_try_or_for_a_lock_ends() -> None:
    lock = threading.Lock()

    def wait_for_lock() -> None:
        with waited_for(lock):
            pass

    with lock, parts_in_threads(2) as threads:
        waiting = [threads.begin(pause, 300), threads.begin(wait_for_lock)]
        time.sleep(SOON_S)
    assert [type(each.exception()).__name__ for each in waiting] == ["UnwantedError"] * 2


def copy_numbers(folder: Path) -> None:
    with Staging(folder).connect() as connection:
        connection.execute(LONG).fetchall()


def read_stream(folder: Path) -> None:
    schema = pa.schema({"number": pa.int64()})

    def batches() -> Generator[pa.RecordBatch]:
        while True:
            yield pa.record_batch([pa.array(range(1_000))], schema)

    with Staging(folder).connect() as connection:
        connection.register("numbers", pa.RecordBatchReader.from_batches(schema, batches()))
        connection.execute("SELECT count(*) FROM numbers").fetchall()


def ask_small(_: Path) -> None:
    with small_work() as connection:
        connection.execute(LONG).fetchall()


def collect(folder: Path) -> None:
    frame = pl.LazyFrame({"a": range(3_000_000)}).with_columns(b=pl.col("a").hash().cast(pl.String))
    query = pl.concat([frame] * 3).sort("b").group_by("a").len()
    with atomic_write(folder / "file") as written:
        written.touch()
        query.collect()
        raise_if_unwanted()


WAYS: dict[str, Callable[[Path], None]] = {
    "a query": copy_numbers,
    "a query of a stream": read_stream,
    "small work": ask_small,
    "polars": collect,
}


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_in_a_library_ends_a_call_and_leaves_nothing(tmp_path: Path, way: str) -> None:
    with pytest.raises(KeyboardInterrupt), interrupted_soon():
        interruptible(WAYS[way])(tmp_path)
    assert not [*tmp_path.iterdir()]
    with small_work() as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_an_error_of_a_query_stays_that() -> None:
    @interruptible
    def ask() -> None:
        with small_work() as connection:
            connection.execute("SELECT 1 FROM nowhere")

    with pytest.raises(duckdb.Error):
        ask()


def test_ctrl_c_again_does_not_interrupt_what_clears_up() -> None:
    cleared: list[int] = []

    @interruptible
    def work() -> None:
        interrupt()
        try:
            work_for_ever(None)
        finally:
            interrupt()
            pause(SOON_S)  # as it is wanted again
            with parts_in_threads(1) as threads:
                cleared.append(result_of(threads.begin(int, 7)))
            try:
                {}.popitem()
            except KeyError:
                interrupt()
                raise_if_unwanted()
            cleared.append(8)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        work()
    assert cleared == [7, 8]
    assert signal.getsignal(signal.SIGINT) is before


def test_what_hangs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "STOP_TIMEOUT_S", SOON_S)
    hanging = threading.Event()
    with pytest.raises(KeyboardInterrupt), interrupted_soon():
        interruptible(hanging.wait)(5)
    assert not hanging.is_set()
    hanging.set()
    assert not at_work()


def test_who_calls_again_while_an_interrupt_is_handled_can_interrupt_that_call() -> None:
    for _ in range(2):
        try:
            with interrupted_soon():
                interruptible(map_parts)()
        except KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt), interrupted_soon():
                interruptible(map_parts)()
    assert not at_work()


def test_in_another_thread_work_is_done_there() -> None:
    found: list[object] = []
    work = interruptible(lambda: found.append(threading.current_thread()))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [thread]


def test_what_is_not_wanted_does_not_begin() -> None:
    with parts_in_threads(1) as threads:
        threads.end()
        assert isinstance(threads.begin(int, 1).exception(), UnwantedError)


def test_an_interrupt_leaves_no_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, marked = os.mkdir, list[str]()

    def interrupted(path: str, mode: int = 0o777) -> None:
        make(path, mode)
        marked.append(path)
        interrupt()  # before Python knows what to remove
        time.sleep(SOON_S)

    monkeypatch.setattr(os, "mkdir", interrupted)

    @interruptible
    def work() -> None:
        with TemporaryDirectory(dir=tmp_path):
            pause(10)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert marked
    assert not [*tmp_path.iterdir()]
