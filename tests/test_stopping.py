"""Parts end when nobody waits for them; Ctrl-C interrupts once, whatever library is at work."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from kp_batch.duck import small_work
from kp_batch.errors import RunTimeoutError
from kp_batch.files import atomic_write
from kp_batch.runs.staging import Staging
from kp_batch.steps.step import Step, ThreadExecutor
from kp_batch.steps.timeout import ended_after, wait
from kp_batch.stopping import interrupted_once, look, parts_in_threads, waited_for

# A query that takes a minute, and next to no memory.
LONG = "SELECT count(*) FROM range(100_000_000) a, range(100) b WHERE hash(a.range, b.range) = 3"
SOON_S = 0.05


def at_work() -> list[str]:
    """The threads of parts."""
    return [each.name for each in threading.enumerate() if "ThreadPool" in each.name]


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
        look()
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


def test_parts_end_on_ctrl_c_in_the_main_thread() -> None:
    with pytest.raises(KeyboardInterrupt), interrupted_soon():
        [*ThreadExecutor(2).map(Step("part", work_for_ever), [0, 1, 2])]
    assert not at_work()


def test_the_parts_of_both_mappings_end_where_one_gives_the_other_its_parts() -> None:
    executor, begun = ThreadExecutor(2), threading.Event()

    def first(number: int) -> int:
        return number if not number else work_for_ever(number) or 0

    def second(_: int) -> None:
        begun.set()
        work_for_ever(None)

    inner = executor.map(Step("first", first), iter([0, 1]))
    with pytest.raises(KeyboardInterrupt), interrupted_soon():
        [*executor.map(Step("second", second), inner)]
    assert begun.is_set()
    assert not at_work()


def test_parts_of_a_part_end_with_it() -> None:
    inner = Step("inner", work_for_ever)
    outer = Step("outer", lambda _: [*ThreadExecutor(2).map(inner, [0, 1])])
    with pytest.raises(KeyboardInterrupt), interrupted_soon():
        [*ThreadExecutor(1).map(outer, [0, 1])]
    assert not at_work()


@pytest.mark.parametrize("is_main", [True, False])
def test_the_parts_of_a_run_that_is_late_end(*, is_main: bool) -> None:
    found: list[BaseException] = []

    def work() -> None:
        try:
            with ended_after(timedelta(seconds=SOON_S)):
                [*ThreadExecutor(2).map(Step("part", work_for_ever), [0, 1])]
        except RunTimeoutError as error:
            found.append(error)

    if is_main:
        work()
    else:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(found) == 1
    assert not at_work()


def test_a_part_that_waits_for_another_try_or_for_a_lock_ends() -> None:
    lock = threading.Lock()

    def wait_for_lock() -> None:
        with waited_for(lock):
            pass

    with lock, parts_in_threads(2) as threads:
        waiting = [threads.begin(wait, 300), threads.begin(wait_for_lock)]
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


WAYS: dict[str, Callable[[Path], None]] = {
    "a query": copy_numbers,
    "a query of a stream": read_stream,
    "small work": ask_small,
}


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_in_duckdb_is_an_interrupt(tmp_path: Path, way: str) -> None:
    with pytest.raises(KeyboardInterrupt), interrupted_soon():
        WAYS[way](tmp_path)
    with small_work() as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_is_late_in_duckdb_says_so(tmp_path: Path, way: str) -> None:
    with pytest.raises(RunTimeoutError), ended_after(timedelta(seconds=SOON_S)):
        WAYS[way](tmp_path)


def test_an_error_of_a_query_stays_that_after_an_interrupt() -> None:
    with interrupted_once():
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        with pytest.raises(duckdb.Error), small_work() as connection:
            connection.execute("SELECT 1 FROM nowhere")


def test_polars_interrupts_once_and_not_what_clears_up(tmp_path: Path) -> None:
    frame = pl.LazyFrame({"a": range(3_000_000)}).with_columns(b=pl.col("a").hash().cast(pl.String))
    query = pl.concat([frame] * 3).sort("b").group_by("a").len()

    def work() -> None:
        with atomic_write(tmp_path / "file") as written:
            written.touch()
            query.collect()

    with pytest.raises(KeyboardInterrupt), interrupted_once(), interrupted_soon():
        work()
    assert not [*tmp_path.iterdir()]


def test_ctrl_c_again_does_not_interrupt_what_clears_up() -> None:
    cleared: list[str] = []

    def work() -> None:
        try:
            interrupt()
        finally:
            interrupt()
            cleared.append("one")
            try:
                [].pop()
            except IndexError:
                interrupt()
            cleared.append("two")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupted_once():
        work()
    assert cleared == ["one", "two"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_somebody_swallows_does_not_take_the_next_one_away() -> None:
    with interrupted_once():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                interrupt()


def test_who_calls_again_while_an_interrupt_is_handled_can_interrupt_that_call() -> None:
    def call() -> None:
        with interrupted_once():
            try:
                {}.popitem()
            except KeyError:
                interrupt()

    with pytest.raises(KeyboardInterrupt):
        call()
    try:
        call()
    except KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            call()


def test_within_another_and_in_another_thread_the_handler_stays() -> None:
    found: list[Any] = []

    def look_at_it() -> None:
        with interrupted_once():
            found.append(signal.getsignal(signal.SIGINT))

    look_at_it()
    with interrupted_once():
        outer = signal.getsignal(signal.SIGINT)
        look_at_it()
        assert signal.getsignal(signal.SIGINT) is outer
    thread = threading.Thread(target=look_at_it)
    thread.start()
    thread.join()
    before = signal.getsignal(signal.SIGINT)
    assert found[1:] == [outer, before]
    assert found[0] is not before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupted_once():
            interrupt()
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_a_library_has_at_the_system_stays() -> None:
    """Polars has a handler there; here it is the flag to go on with a system call."""

    def flags() -> bytes:
        found = ctypes.create_string_buffer(1_024)
        ctypes.CDLL(None).sigaction(signal.SIGINT, None, found)
        return found.raw[136:140]

    plain = flags()
    signal.siginterrupt(signal.SIGINT, False)  # noqa: FBT003
    try:
        own = flags()
        with interrupted_once():
            assert flags() == own
        assert flags() == own
    finally:
        signal.siginterrupt(signal.SIGINT, True)  # noqa: FBT003
    assert (flags(), own) == (plain, own)
    assert own != plain


def test_an_interrupt_leaves_no_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, marked = os.mkdir, list[str]()

    def interrupted(path: str, mode: int = 0o777) -> None:
        make(path, mode)
        marked.append(path)
        signal.raise_signal(signal.SIGINT)  # before Python knows what to remove

    monkeypatch.setattr(os, "mkdir", interrupted)

    def work() -> None:
        with TemporaryDirectory(dir=tmp_path):
            threading.Event().wait(10)

    with pytest.raises(KeyboardInterrupt), interrupted_once():
        work()
    assert marked
    assert not [*tmp_path.iterdir()]


def test_an_interrupt_waits_for_the_end_of_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nis_whole = True\n"
    (tmp_path / "imported_by_a_run.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    def work() -> None:
        import_module("imported_by_a_run")
        threading.Event().wait(10)

    with pytest.raises(KeyboardInterrupt), interrupted_once():
        work()
    assert sys.modules.pop("imported_by_a_run").is_whole
