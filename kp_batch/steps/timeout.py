"""Ends a run that is not over after its timeout, of which each run of a process has its own.

In the main thread the system's timer ends it, wherever Python is at work or waits. No other thread
can be interrupted: there a run ends where it looks for itself, at each step, where it waits, and
while its parts are at work, which are then unwanted: see `stopping`. What hangs in a library is
ended by the supervisor of the command, a little later: see `cli.supervise`.
"""

import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from datetime import timedelta
from math import inf
from types import FrameType

from kp_batch.errors import RunTimeoutError
from kp_batch.stopping import clears_up, interrupted_once, raise_in_handler, wait_as_part
from kp_batch.text import format_duration
from kp_batch.warehouse.last_run import the_try

_LONGEST_S = 1e9  # which the system's timer can count


class _Limit:
    """The timeout of one run, which ends it once, unless it is lifted before."""

    def __init__(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._thread = threading.current_thread()  # a part in another one ends no run
        self._seconds = min(timeout.total_seconds(), _LONGEST_S)
        self._end = time.monotonic() + self._seconds
        self._has_timer = False
        self._is_lifted = False

    @property
    def left_s(self) -> float:
        """The seconds until it ends the run; infinity if it is lifted, or not of this thread."""
        if self._is_lifted or self._thread is not threading.current_thread():
            return inf
        return max(self._end - time.monotonic(), 0)

    def lift(self) -> None:
        """End the run no more."""
        self._is_lifted = True
        if self._has_timer:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def check(self) -> None:
        """End the run if it is late."""
        if not self.left_s:
            raise self._ended()

    @contextmanager
    def with_timer(self) -> Generator[None]:
        """Interrupt the main thread, whatever it does in the context."""
        before = signal.signal(signal.SIGALRM, self._interrupt)
        earlier = signal.setitimer(signal.ITIMER_REAL, self._seconds)
        self._has_timer = True
        try:
            yield
        finally:
            self.lift()
            signal.signal(signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, *earlier)  # somebody else's, which begins anew

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_lifted and not clears_up():
            raise_in_handler(self._ended())

    def _ended(self) -> RunTimeoutError:
        self.lift()  # what follows leaves how it ended, and takes its time
        this = the_try()
        return RunTimeoutError(not_over(self._timeout, this.step if this else None))


_LIMIT: ContextVar[_Limit | None] = ContextVar("limit", default=None)  # of this context's run


def not_over(timeout: timedelta, step: str | None) -> str:
    """What is said of a run that was at a step at its timeout; None: before its first one."""
    where = f"in the step {step}" if step else "before its first step"
    return f"the run was not over after --timeout {format_duration(timeout)}, and is ended {where}"


@contextmanager
def ended_after(timeout: timedelta | None) -> Generator[None]:
    """End the run that the context is, after a time; None: never.

    Raises:
        RunTimeoutError: it was not over.
    """
    limit = _Limit(timeout) if timeout is not None else None
    token = _LIMIT.set(limit)
    try:
        is_main = threading.current_thread() is threading.main_thread()
        with interrupted_once(), limit.with_timer() if limit and is_main else nullcontext():
            yield
    finally:
        _LIMIT.reset(token)


def check_time() -> None:
    """End the run of this thread if it is late.

    Raises:
        RunTimeoutError: it is.
    """
    if limit := _LIMIT.get():
        limit.check()


def left_s() -> float:
    """The seconds that the run of this thread has left; without end, infinity."""
    limit = _LIMIT.get()
    return limit.left_s if limit else inf


def wait(seconds: float) -> None:
    """Wait, no longer than the run of this thread may take, or this part is wanted.

    Raises:
        RunTimeoutError: it is late by then.
    """
    if not wait_as_part(seconds):
        time.sleep(min(seconds, left_s()))
        check_time()


def let_it_end() -> None:
    """End the run of the context no more: what it publishes from now on nothing undoes."""
    if limit := _LIMIT.get():
        limit.lift()
