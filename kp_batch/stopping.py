"""Work that is over before its end: parts that nobody waits for any more, and Ctrl-C.

Parts of a step work in threads, which nothing interrupts: between their batches they look whether
they are still wanted. The main thread is interrupted wherever it is, once: not again while it
clears up.
"""

import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from inspect import currentframe
from math import inf
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_AT_ONCE_S = 1.0  # to wait, until the next look
_SOON_S = 0.05  # until an interrupt comes again
# Code that is of no more use, or leaves a folder behind, where it is interrupted.
_WHOLE = ("<frozen importlib._bootstrap>", tempfile.__file__)
_ACTION_BYTES = 1_024  # of the system's `struct sigaction`, at the most


class UnwantedError(BaseException):
    """Nobody waits for this part: no failure, which is tried again, or makes a file unreadable."""


class Parts:
    """Work in threads that is wanted until whoever began it leaves: see `parts_in_threads`."""

    def __init__(self, number: int) -> None:
        self._within = _PARTS.get()
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(number)

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
        look()
        return work(*args, **kwargs)

    def end(self) -> None:
        """Begin no more of them, and have those under way end where they look next."""
        self._ended.set()

    def wait(self, seconds: float) -> None:
        """Wait, as long as they are wanted."""
        while seconds > 0 and not self._ended.wait(min(seconds, _AT_ONCE_S)):
            look()
            seconds -= _AT_ONCE_S

    def join(self) -> None:
        """Wait until none is at work, whatever interrupts that; then raise what has."""
        interrupt: BaseException | None = None
        while True:
            try:
                self._pool.shutdown(cancel_futures=True)
                break
            except BaseException as error:  # noqa: BLE001 (of a signal)
                interrupt = error
        if interrupt:
            raise interrupt


def is_done(future: Future[Any], seconds: float = inf) -> bool:
    """Wait for a part, so long at the most; returns whether it is done.

    The wait is cut: Polars has the system go on with one without an end after an interrupt, which
    would not be noticed.
    """
    while not future.done() and seconds > 0:
        wait([future], min(seconds, _AT_ONCE_S))
        seconds -= _AT_ONCE_S
    return future.done()


def result_of(future: Future[R]) -> R:
    """The result of a part; see `is_done`."""
    is_done(future)
    return future.result()


@contextmanager
def parts_in_threads(number: int) -> Generator[Parts]:
    """Do parts in so many threads, none of which is at work any more at the end."""
    parts = Parts(number)
    try:
        yield parts
    finally:
        parts.end()
        parts.join()


_PARTS: ContextVar[Parts | None] = ContextVar("parts", default=None)


def look() -> None:
    """End this part if nobody waits for it any more; to be called between the batches of a part.

    Raises:
        UnwantedError: nobody does.
    """
    if (parts := _PARTS.get()) and not parts.are_wanted:
        raise UnwantedError


def wait_as_part(seconds: float) -> bool:
    """Wait as the part that the context is, no longer than it is wanted; False: it is no part.

    Raises:
        UnwantedError: nobody waits for it any more.
    """
    if (parts := _PARTS.get()) is None:
        return False
    parts.wait(seconds)
    look()
    return True


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


_Raised = tuple[type[BaseException], tuple[object, ...]]
_RAISED: list[_Raised] = []  # what a signal's handler has raised last, at most one
_STOPS: list[Callable[[], object]] = []  # of what libraries do in the main thread
# What a caller was handling when its call began: it may call again after an interrupt.
_OUTER: list[BaseException | None] = [None]


def raise_in_handler(error: BaseException) -> NoReturn:
    """Raise an error out of a signal's handler, and stop what a library does in the main thread."""
    _RAISED[:] = [(type(error), error.args)]
    for stop in _STOPS:
        stop()
    raise error


def clears_up() -> bool:
    """Whether the main thread clears up after an interrupt, or closes a generator."""
    error = sys.exception()
    while error and error is not _OUTER[0]:
        if isinstance(error, KeyboardInterrupt | GeneratorExit | UnwantedError):
            return True
        error = error.__context__
    return False


@contextmanager
def stopped_by(stop: Callable[[], object]) -> Generator[None]:
    """Have an interrupt, or a run's timeout, stop what a library does meanwhile.

    DuckDB sees signals, but makes them an error of its own, and lets its threads end what they are
    at, unless it is told to stop.

    Raises:
        BaseException: what the signal's handler has raised, in place of the library's error.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with interrupted_once():
        before = _last_raised()
        _STOPS.append(stop)
        try:
            yield
        except Exception as error:
            raised = _last_raised()
            if raised and raised is not before and not isinstance(error, raised[0]):
                raise raised[0](*raised[1]) from error
            raise
        finally:
            _STOPS.remove(stop)


def _last_raised() -> _Raised | None:
    return _RAISED[0] if _RAISED else None


def _whole(frame: FrameType | None) -> int:
    """How many calls of code that is to be done as a whole a frame is within."""
    number = 0
    while frame:
        number += frame.f_code.co_filename in _WHOLE
        frame = frame.f_back
    return number


def _interrupt_soon(number: int) -> None:
    soon = threading.Timer(_SOON_S, _interrupt_main_thread, [number])
    soon.daemon = True
    soon.start()


def _interrupt_main_thread(number: int) -> None:
    if main := threading.main_thread().ident:
        signal.pthread_kill(main, number)


class _Once:
    """A handler of SIGINT: it interrupts as the one before, but nothing that clears up.

    Nor does it interrupt an import, but comes again: Polars, for one, is of no more use to a
    process where its import was interrupted. Nor Python as it makes a temporary folder, which would
    stay.
    """

    def __init__(self, before: Callable[[int, FrameType | None], object]) -> None:
        self._before, self._whole = before, _whole(currentframe())

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if clears_up():  # Polars raises an interrupt itself, and Python once more
            return
        if _whole(frame) > self._whole:
            _interrupt_soon(number)
            return
        try:
            self._before(number, frame)
        except BaseException as error:  # noqa: BLE001 (whatever it is)
            raise_in_handler(error)


@contextmanager
def interrupted_once() -> Generator[None]:
    """Let Ctrl-C interrupt what is done meanwhile, and nothing that clears up after that.

    In the main thread alone, which has Python's signals, and where Python handles this one.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(before) or isinstance(before, _Once):
        yield
        return
    once = _Once(before)
    _OUTER[:] = [sys.exception()]
    _handle_interrupts(once)
    try:
        yield
    finally:
        _RAISED.clear()
        _OUTER[:] = [None]
        if signal.getsignal(signal.SIGINT) is once:  # what it calls may set another
            _handle_interrupts(before)


def _handle_interrupts(handler: Callable[[int, FrameType | None], object]) -> None:
    """Set Python's handler of SIGINT alone.

    Polars has one at the system, by which its queries are interrupted, and which goes on to
    Python's: `signal.signal` would take it away.
    """
    if "polars" not in sys.modules:
        signal.signal(signal.SIGINT, handler)
        return
    import ctypes

    system, action = ctypes.CDLL(None), ctypes.create_string_buffer(_ACTION_BYTES)
    system.sigaction(signal.SIGINT, None, action)
    signal.signal(signal.SIGINT, handler)
    system.sigaction(signal.SIGINT, action, None)
