"""Stop work early: after Ctrl-C, or when nobody waits for its result any more.

Work runs in threads, which nothing can interrupt, so it checks between its batches whether it is
still wanted. The main thread only waits. Ctrl-C therefore interrupts the wait alone, and no signal
arrives while the work cleans up.
"""

import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_CHECK_INTERVAL_S = 0.2  # the longest wait between two checks
_STOP_INTERVAL_S = 0.02  # until queries are stopped again
STOP_TIMEOUT_S = 10.0  # for the work to clean up after Ctrl-C


class UnwantedError(BaseException):
    """Nobody waits for this part any more. Not a failure: it is neither retried nor reported."""


class Parts:
    """Work in threads, wanted until its caller stops waiting; see `parts_in_threads`."""

    def __init__(self, number: int) -> None:
        self._within = None if _clears_up() else _PARTS.get()
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(number)
        self._stops: list[Callable[[], object]] = []
        self._at_work: list[object] = []  # the parts that are running

    @property
    def are_wanted(self) -> bool:
        """Whether somebody waits for them; False if the part that began them is unwanted."""
        within = self._within
        return not self._ended.is_set() and (within is None or within.are_wanted)

    def begin(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a part as soon as a thread is free, in a copy of this context."""
        return self._pool.submit(copy_context().run, self._do, work, *args, **kwargs)

    def _do(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        _PARTS.set(self)
        self._at_work.append(work)
        try:
            raise_if_unwanted()
            return work(*args, **kwargs)
        finally:
            self._at_work.remove(work)

    def end(self) -> None:
        """Begin no more parts and stop queries; running parts end at their next check."""
        self._ended.set()
        for stop in [*self._stops]:
            stop()

    def join(self) -> None:
        """Wait until no part is running."""
        self._pool.shutdown(cancel_futures=True)

    def leave(self) -> None:
        """End the parts, and wait at most `STOP_TIMEOUT_S` until none is running.

        Another Ctrl-C does not shorten the wait.
        """
        until = time.monotonic() + STOP_TIMEOUT_S
        while self._at_work and time.monotonic() < until:
            with suppress(KeyboardInterrupt):
                self.end()
                time.sleep(_STOP_INTERVAL_S)
        self._pool.shutdown(wait=not self._at_work, cancel_futures=True)

    @contextmanager
    def stopped_by(self, stop: Callable[[], object]) -> Generator[None]:
        """See the function `stopped_by`."""
        self._stops.append(stop)
        try:
            yield
        except Exception as error:
            if self.are_wanted or _clears_up():
                raise
            raise UnwantedError from error
        finally:
            self._stops.remove(stop)


_PARTS: ContextVar[Parts | None] = ContextVar("parts", default=None)


def _clears_up() -> bool:
    """Whether this thread is cleaning up after work that was stopped."""
    error = sys.exception()
    while error:
        if isinstance(error, KeyboardInterrupt | UnwantedError):
            return True
        error = error.__context__
    return False


def raise_if_unwanted() -> None:
    """End this part if nobody waits for it any more. Parts call this between their batches.

    Raises:
        UnwantedError: nobody does.
    """
    if (parts := _PARTS.get()) and not parts.are_wanted and not _clears_up():
        raise UnwantedError


def pause(seconds: float) -> None:
    """Sleep for `seconds`, or until nobody waits for this part any more.

    Raises:
        UnwantedError: nobody waits for it any more.
    """
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        raise_if_unwanted()
        time.sleep(min(left, _CHECK_INTERVAL_S))


def result_of(future: Future[R]) -> R:
    """Return the result of a part.

    It waits in short steps: with Polars loaded, the system resumes an endless wait after an
    interrupt, and nobody would notice the interrupt.

    Raises:
        UnwantedError: nobody waits any more for the part that called this.
    """
    while not future.done():
        raise_if_unwanted()
        wait([future], _CHECK_INTERVAL_S)
    try:
        return future.result()
    finally:
        del future  # breaks the reference cycle between the future and its error


@contextmanager
def parts_in_threads(number: int) -> Generator[Parts]:
    """Run parts in `number` threads; on exit none of them is running any more."""
    parts = Parts(number)
    try:
        yield parts
    finally:
        parts.end()
        parts.join()


@contextmanager
def waited_for(lock: threading.Lock) -> Generator[None]:
    """Hold a lock that others may hold for long; stop waiting once this part is unwanted.

    Raises:
        UnwantedError: nobody waits for this part any more.
    """
    while not lock.acquire(timeout=_CHECK_INTERVAL_S):
        raise_if_unwanted()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def stopped_by(stop: Callable[[], object]) -> Generator[None]:
    """Call `stop`, such as DuckDB's interrupt, once nobody waits for this part any more.

    Raises:
        UnwantedError: nobody does; it replaces the library's error.
    """
    if parts := _PARTS.get():
        with parts.stopped_by(stop):
            yield
    else:
        yield


def interruptible(work: Callable[P, R]) -> Callable[P, R]:
    """Let Ctrl-C end some work, by running it in a thread for which the main thread waits.

    KeyboardInterrupt is raised once the work has cleaned up. Work that hangs, for example on a disk
    that does not answer, is abandoned after `STOP_TIMEOUT_S`; it ends at its next check.
    """

    @wraps(work)
    def done(*args: P.args, **kwargs: P.kwargs) -> R:
        if threading.current_thread() is not threading.main_thread():
            return work(*args, **kwargs)
        parts = Parts(1)
        try:
            return result_of(parts.begin(work, *args, **kwargs))
        finally:
            parts.leave()

    return done
