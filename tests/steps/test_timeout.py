"""A run that is not over in time: what is said of it, and what it leaves."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest

from kp_batch.errors import RunTimeoutError, waiting_for
from kp_batch.operations.preview import preview
from kp_batch.pipeline.rescore import opened_warehouse, rescore_and_report
from kp_batch.steps.step import Step, ThreadExecutor, timed
from kp_batch.steps.timeout import check_time, ended_after, left_s, let_it_end, wait
from kp_batch.warehouse.last_run import LastRun
from kp_batch.warehouse.lock import locked
from tests.support.archives import trace, write_jsonl
from tests.support.queries import ask
from tests.support.runs import config

SOON = timedelta(seconds=0.05)
LATER = timedelta(seconds=60)
LATE = "^the run was not over after --timeout "


def in_thread(work: Callable[[], object]) -> None:
    """Do some work in another thread, and raise its error."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def test_what_waits_is_ended_and_says_for_what() -> None:
    words = r"was not over after --timeout .* before its first step; it waited for a bus$"
    with (
        pytest.raises(RunTimeoutError, match=words),
        ended_after(SOON),
        waiting_for(lambda: "a bus"),
    ):
        time.sleep(60)


def test_a_timer_of_somebody_else_is_set_again() -> None:
    handler, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, 200, 7)
    try:
        let_it_end()  # which is not ours
        with ended_after(timedelta(seconds=5)):
            assert 4 < signal.getitimer(signal.ITIMER_REAL)[0] < 5.1
        assert signal.getitimer(signal.ITIMER_REAL) == (pytest.approx(200, abs=9), 7)
        assert signal.getsignal(signal.SIGALRM) == handler
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)


def test_without_a_timeout_or_in_another_thread_nothing_is_set() -> None:
    set_to: list[float] = []
    before = signal.getitimer(signal.ITIMER_REAL)[0]

    def look(timeout: timedelta | None) -> None:
        with ended_after(timeout):
            set_to.append(signal.getitimer(signal.ITIMER_REAL)[0])

    look(None)
    thread = Thread(target=look, args=[SOON])
    thread.start()
    thread.join()
    assert set_to == pytest.approx([before, before], abs=9)
    look(timedelta.max)
    assert set_to[-1] > 1e8


def test_what_publishes_is_not_ended() -> None:
    with ended_after(SOON):
        let_it_end()
        time.sleep(0.1)


def publish(timeout: timedelta) -> None:
    with ended_after(timeout):
        let_it_end()


@pytest.mark.parametrize("timeout", [SOON, LATER])
def test_a_run_that_publishes_in_another_thread_lets_this_one_end(timeout: timedelta) -> None:
    def work() -> None:
        with ended_after(SOON):
            in_thread(lambda: publish(timeout))
            time.sleep(5)

    with pytest.raises(RunTimeoutError, match=LATE):
        work()


def test_a_run_in_another_thread_ends_although_this_one_publishes() -> None:
    def work() -> None:
        with ended_after(SOON):
            wait(5)

    began = time.monotonic()
    with ended_after(LATER):
        let_it_end()
        assert left_s() == math.inf
        with pytest.raises(RunTimeoutError, match=LATE):
            in_thread(work)
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("parts", [[0, 1], iter(range(9))], ids=["a sequence", "an iterator"])
def test_a_run_in_another_thread_ends_after_a_part(parts: list[int]) -> None:
    done: list[int] = []

    def work() -> None:
        with ended_after(SOON), timed():
            part = Step("part", lambda _: time.sleep(0.06))
            done.extend(number for number, _ in enumerate(ThreadExecutor(1).map(part, parts)))

    with pytest.raises(RunTimeoutError, match=LATE):
        in_thread(work)
    assert len(done) <= 1


def test_a_run_in_another_thread_ends_before_a_step_and_does_what_is_left_to_do_then() -> None:
    step, did = Step("step", lambda: did.append("step")), list[str]()

    def work() -> None:
        with ended_after(SOON), timed():
            step()
            time.sleep(0.06)
            with pytest.raises(RunTimeoutError, match=LATE):
                step()
            step()

    in_thread(work)
    assert did == ["step", "step"]


def test_a_part_of_a_run_ends_no_run_itself() -> None:
    done: list[object] = []

    def work() -> None:
        part = Step("part", lambda _: done.append(check_time()))
        with ended_after(SOON):
            time.sleep(0.06)
            [*ThreadExecutor(1).map(part, [0])]

    with pytest.raises(RunTimeoutError, match=LATE):
        in_thread(work)
    assert done == [None]


def test_a_run_in_another_thread_waits_for_a_writer_no_longer_than_it_may(tmp_path: Path) -> None:
    settings = config(tmp_path, tmp_path, wait=True, timeout="60s")

    def work() -> None:
        with ended_after(SOON), opened_warehouse(settings):
            pass

    words = f"{LATE}.*; it waited for the writer of "
    with locked(settings.warehouse, wait=False), pytest.raises(RunTimeoutError, match=words):
        in_thread(work)


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_a_run_that_waits_for_a_read_for_ever_fails_with_its_row_and_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive"
    write_jsonl(archive / "a.jsonl", [trace(id="a")])
    settings = config(tmp_path, archive, embedder="none")
    rescore_and_report(settings)
    write_jsonl(archive / "b.jsonl", [trace(id="b")])
    os.mkfifo(tmp_path / "fifo")
    hanging = lambda *_, **__: (tmp_path / "fifo").read_text()  # noqa: E731
    monkeypatch.setattr("kp_batch.ingest.scan.discover", hanging)
    late = settings.model_copy(update={"timeout": timedelta(seconds=1)})
    words = "the run was not over after --timeout 1s, and is ended in the step read"
    with pytest.raises(RunTimeoutError, match=f"^{words}$"):
        rescore_and_report(late)
    query = "SELECT status, reason FROM runs ORDER BY started_at"
    assert ask(tmp_path / "warehouse", query).rows() == [("done", None), ("failed", words)]
    assert ask(tmp_path / "warehouse", "SELECT count(*) FROM scores").item() == 1
    last = LastRun.read(tmp_path / "warehouse")
    assert last
    assert (last.status, last.code, last.reason) == ("failed", "timeout", words)
    with pytest.raises(RunTimeoutError):
        preview(late)
    monkeypatch.undo()
    assert rescore_and_report(settings).counts.accepted == 2


@pytest.mark.process
def test_settings_that_are_never_read_end_a_run_as_well(tmp_path: Path) -> None:
    reading, writing = os.pipe()  # to which nobody writes
    command = (
        "import sys; from kp_batch.cli import main, supervise; supervise._GRACE_S = 0; "
        f"sys.argv = ['kp-batch', 'run', 'a', '--warehouse', {str(tmp_path / 'w')!r}, "
        f"'--profiles', '/dev/fd/{reading}', '--timeout', '1s', '--json']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        pass_fds=[reading, writing],
    )
    os.close(reading)
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "kp-batch: the run was not over after --timeout 1s, and is ended "
    )
    assert '"code": "timeout"' in done.stdout
