"""Work that is over before its end: parts that nobody waits for any more, and Ctrl-C.

Work is done in threads, which nothing interrupts: between its batches it looks whether it is still
wanted. The main thread only waits for it. So Ctrl-C interrupts the wait alone, and no signal comes
while the work clears up.
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

_AT_ONCE_S = 0.2  # to wait, until the next look
_SOON_S = 0.02  # until queries are stopped again
STOP_TIMEOUT_S = 10.0  # after Ctrl-C, for the work to clear up


class UnwantedError(BaseException):
    """Nobody waits for this part: no failure, which is tried again, or makes a file unreadable."""


class Parts:
    """Work in threads that is wanted until whoever began it leaves: see `parts_in_threads`."""

    def __init__(self, number: int) -> None:
        self._within = None if _clears_up() else _PARTS.get()
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(number)
        self._stops: list[Callable[[], object]] = []
        self._at_work: list[object] = []  # which of them are

    @property
    def are_wanted(self) -> bool:
        """Whether somebody waits for them; not where they are parts of an unwanted part."""
        within = self._within
        return not self._ended.is_set() and (within is None or within.are_wanted)

    def begin(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Begin a part as soon as a thread is free, in a copy of this context."""
        return self._pool.submit(copy_context().run, self._do, work, *args, **kwargs)

    def _do(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        _PARTS.set(self)
        self._at_work.append(work)
        try:
            look()
            return work(*args, **kwargs)
        finally:
            self._at_work.remove(work)

    def end(self) -> None:
        """Begin no more of them, stop queries, and have those under way end where they look."""
        self._ended.set()
        for stop in [*self._stops]:
            stop()

    def join(self) -> None:
        """Wait until none is at work."""
        self._pool.shutdown(cancel_futures=True)

    def leave(self) -> None:
        """End them, and wait until none is at work, but no longer than `STOP_TIMEOUT_S`.

        Whoever presses Ctrl-C again waits as well.
        """
        until = time.monotonic() + STOP_TIMEOUT_S
        while self._at_work and time.monotonic() < until:
            with suppress(KeyboardInterrupt):
                self.end()
                time.sleep(_SOON_S)
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
    """Whether this thread clears up after work that is over before its end."""
    error = sys.exception()
    while error:
        if isinstance(error, KeyboardInterrupt | UnwantedError):
            return True
        error = error.__context__
    return False


def look() -> None:
    """End this part if nobody waits for it any more; to be called between the batches of a part.

    Raises:
        UnwantedError: nobody does.
    """
    if (parts := _PARTS.get()) and not parts.are_wanted and not _clears_up():
        raise UnwantedError


def pause(seconds: float) -> None:
    """Wait, no longer than this part is wanted.

    Raises:
        UnwantedError: nobody waits for it any more.
    """
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        look()
        time.sleep(min(left, _AT_ONCE_S))


def result_of(future: Future[R]) -> R:
    """The result of a part.

    The wait is cut: Polars has the system go on with one without an end after an interrupt, which
    would not be noticed.

    Raises:
        UnwantedError: nobody waits for the part any more that waits for this one.
    """
    while not future.done():
        look()
        wait([future], _AT_ONCE_S)
    try:
        return future.result()
    finally:
        del future  # its error would hold it, and it its error


@contextmanager
def parts_in_threads(number: int) -> Generator[Parts]:
    """Do parts in so many threads, none of which is at work any more at the end."""
    parts = Parts(number)
    try:
        yield parts
    finally:
        parts.end()
        parts.join()


@contextmanager
def waited_for(lock: threading.Lock) -> Generator[None]:
    """Hold a lock that a part of somebody else may have for long; an unwanted one waits no longer.

    Raises:
        UnwantedError: nobody waits for this part any more.
    """
    while not lock.acquire(timeout=_AT_ONCE_S):
        look()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def stopped_by(stop: Callable[[], object]) -> Generator[None]:
    """Have a library stopped, such as a query of DuckDB, once nobody waits for this part any more.

    Raises:
        UnwantedError: nobody does, in place of the library's error.
    """
    if parts := _PARTS.get():
        with parts.stopped_by(stop):
            yield
    else:
        yield


def interruptible(work: Callable[P, R]) -> Callable[P, R]:
    """Have Ctrl-C end some work: it is done in a thread, for which the main thread waits.

    KeyboardInterrupt is raised once the work has cleared up. What hangs, as in a disk that does not
    answer, is left alone after `STOP_TIMEOUT_S`, and ends where it looks next.
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
