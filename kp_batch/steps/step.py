"""The steps of a run, their time, and the parts of their work.

A run calls its steps as plain functions. Each is timed and retried, and is a task if Prefect runs
the flow. An executor carries out the parts of a step: in threads of this process, or on Ray (see
`ray`).
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from kp_batch.errors import StorageError, is_passing
from kp_batch.log import is_watched, warn
from kp_batch.log_lines import in_step
from kp_batch.steps.cores import computing_on
from kp_batch.stopping import parts_in_threads, pause, raise_if_unwanted, result_of
from kp_batch.text import one_line
from kp_batch.warehouse.last_run import current_attempt

# A lost packet takes 5 s, a server's restart a minute, and clients of an NFS server may take 90 s
# more to come back: the last attempt is after six minutes.
RETRY_DELAYS_S = (5.0, 60.0, 300.0)
PART_BYTES = 1 << 30  # memory that a part takes at most, about, its model included
AHEAD = 2  # parts of an iterator begun for each worker: one to work on, and one to continue with
START, PREFECT = "start", "prefect"  # activities besides the steps

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Caller = Callable[[str, Callable[..., Any]], Callable[..., Any]]


class Clock:
    """Counts seconds, for one activity at a time: a step by its name, Prefect, or the start.

    The start is everything else: Python, imports, waiting for other runs, time between steps.

    Args:
        began: when the user began to wait, in seconds since the epoch; None for now.
    """

    def __init__(self, began: float | None = None) -> None:
        now = time.time()
        self._since = time.monotonic() - (now - (now if began is None else began))
        self._activity = START
        self._seconds: dict[str, float] = {}

    @contextmanager
    def on(self, activity: str) -> Generator[None]:
        """Count the time of the context for this activity alone."""
        before = self._activity
        self._switch(activity)
        try:
            yield
        finally:
            self._switch(before)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by activity; their sum is the time since the user began to wait."""
        self._switch(self._activity)
        return dict(self._seconds)

    @property
    def rounded(self) -> dict[str, float]:
        """The seconds, rounded to the millisecond, as results contain them."""
        return {activity: round(spent, 3) for activity, spent in self.seconds.items()}

    def _switch(self, activity: str) -> None:
        now = time.monotonic()
        self._seconds[self._activity] = self._seconds.get(self._activity, 0.0) + now - self._since
        self._activity, self._since = activity, now


def step_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of the steps alone."""
    return {name: spent for name, spent in seconds.items() if name not in {START, PREFECT}}


# The clock and the caller of the open run's steps. None within a step: a step that is called there
# is a part of it.
_OPEN: ContextVar[tuple[Clock, Caller] | None] = ContextVar("open", default=None)


@contextmanager
def timed(began: float | None = None, caller: Caller | None = None) -> Generator[Clock]:
    """Time the steps within the context, by the clock that already runs, or by a new one.

    Args:
        began: see `Clock`; used for a new clock.
        caller: takes a step's name and function, and returns the function to call instead.
    """
    clock, before = _OPEN.get() or (Clock(began), lambda _, function: function)
    with _opened((clock, caller or before)):
        yield clock


@contextmanager
def _opened(value: tuple[Clock, Caller] | None) -> Generator[None]:
    token = _OPEN.set(value)
    try:
        yield
    finally:
        _OPEN.reset(token)


def retried(name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function; after a failure that may pass, call it again after each `RETRY_DELAYS_S`.

    It is called only once if a person waits, who can run the command again.

    Raises:
        StorageError: each attempt failed; the caller, if it is a step, does not retry again.
    """
    wanted = () if is_watched() else RETRY_DELAYS_S
    delays = iter(wanted)
    while True:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if not is_passing(error):
                raise
            reason, delay = one_line(str(error)) or type(error).__name__, next(delays, None)
            if delay is None:
                times = (
                    f" {1 + len(wanted)} times in {sum(wanted) / 60:.0f} minutes, the last time "
                    "with"
                )
                raise StorageError(
                    f"{name} failed{times if wanted else ''}: {reason}; run again when that disk "
                    "or server is available"
                ) from error
        warn(f"{name} failed; the next attempt is in {delay:.0f} s: {reason}")
        pause(delay)


@dataclass(frozen=True)
class Step(Generic[P, R]):
    """A function that is one step of a run, or does one part of its work; see `step`."""

    name: str  # in `runs.seconds` and in Prefect
    function: Callable[P, R]
    memory: int = PART_BYTES  # bytes that it takes for a part
    on_gpu: bool = False  # whether it uses a GPU if there is one
    at_once: int | None = None  # parts at once in one process; None for as many as cores

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function with retries (see `retried`), and time it as a step of the open run."""
        opened = _OPEN.get()
        if opened is None:
            return retried(self.name, self.function, *args, **kwargs)
        clock, caller = opened

        @wraps(self.function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            if this := current_attempt():
                this.at(self.name)
            raise_if_unwanted()
            with clock.on(self.name), _opened(None), in_step(self.name):
                return retried(self.name, self.function, *args, **kwargs)

        return caller(self.name, called)(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        """Pickle it by name: by value, its function would bring its whole module."""
        return _imported, (self.function.__module__, self.function.__qualname__)


def _imported(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def step(
    name: str, *, memory: int = PART_BYTES, on_gpu: bool = False, at_once: int | None = None
) -> Callable[[Callable[P, R]], Step[P, R]]:
    """Make a function a `Step`. It must be safe to call again, wherever it failed."""
    return lambda function: Step(name, function, memory, on_gpu, at_once)


class Executor(Protocol):
    """Carries out the parts of a step."""

    def has_gpu(self) -> bool:
        """Whether steps that can compute on a GPU do so."""
        ...

    def map(
        self,
        step: Step[Concatenate[T, P], R],
        parts: Iterable[T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Generator[R]:
        """Call the step for each part, in any order and wherever there is room.

        Args:
            step: takes one part. It writes files named by the part, so another worker can repeat
                it.
            parts: the values to work on. All parts of a sequence begin as soon as there is room, so
                they and their results must be small: paths, ranges, hashes. Parts of an iterator
                are taken one by one, `AHEAD` for each worker, so they and their results may be
                large.
            args: further arguments, the same for all parts.
            kwargs: likewise.

        Returns:
            The results, in the order of the parts. When it is closed, or after an error, it begins
            no further part, and closes the generator of the parts. A caller that may stop early
            must close it: see `closing`.
        """
        ...


@dataclass(frozen=True)
class ThreadExecutor:
    """Carries out parts in threads, as many at once as cores and memory allow.

    Each part has its share of the cores, and NumPy's products take no more. So one part can read
    while another computes, and code that runs on one core runs on all.

    Args:
        cores: cores to use; None for those that this process may use.
        memory: in bytes; None for all that the machine or the container has.
    """

    cores: int | None = None
    memory: int | None = None

    def has_gpu(self) -> bool:
        """See `Executor`."""
        from kp_batch.embedding.precision import has_gpu

        return has_gpu()

    def map(
        self,
        step: Step[Concatenate[T, P], R],
        parts: Iterable[T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Generator[R]:
        """See `Executor`; if it is closed early, it waits until the parts under way have ended.

        Parts check between batches whether to stop: see `stopping`.
        """
        if not parts:
            return
        cores = self.cores or _cores()
        at_once = max(min(step.at_once or cores, (self.memory or _memory()) // step.memory), 1)
        if isinstance(parts, Sequence):
            at_once = min(at_once, len(parts))
        # Parts count as part of the step that maps; their messages go to the log of this flow.
        with (
            computing_on(max(cores // at_once, 1)),
            parts_in_threads(at_once) as threads,
            _opened(None),
        ):

            def begin(part: T) -> Future[R]:
                return threads.begin(step, part, *args, **kwargs)

            with closing(begun_ahead(begin, parts, at_once)) as begun:
                try:
                    for future in begun:
                        yield result_of(future)
                finally:  # before the parts' own generator is closed, which may wait for others
                    threads.end()


def begun_ahead(begin: Callable[[T], R], parts: Iterable[T], at_once: int) -> Generator[R]:
    """Begin parts before their results are taken, in their order; see `Executor.map`.

    A generator of parts is closed at the end: it may be another map, whose limits must end before
    the limits of the map that began it.

    Args:
        begin: begins a part, and returns a handle for its result.
        parts: a sequence, begun at once; or an iterator, begun `AHEAD` for each worker.
        at_once: the number of workers.
    """
    ahead = len(parts) if isinstance(parts, Sequence) else AHEAD * at_once
    begun: deque[R] = deque()
    with closing(parts) if isinstance(parts, Generator) else nullcontext():
        for part in parts:
            begun.append(begin(part))
            if len(begun) > ahead:
                yield begun.popleft()
        while begun:
            yield begun.popleft()


def _cores() -> int:
    from polars import thread_pool_size

    return thread_pool_size()


def _memory() -> int:
    from kp_batch.duck import available_bytes

    return available_bytes()


def cut(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[tuple[T, ...]]:
    """Cut items into parts of neighbours, each as large as possible.

    Args:
        items: in the order that the parts keep.
        size: returns the size of an item.
        most: the maximal sum of a part's sizes; a larger item is a part by itself.
    """
    part: list[T] = []
    total = 0
    for item in items:
        if part and total + size(item) > most:
            yield tuple(part)
            part = []
            total = 0
        part.append(item)
        total += size(item)
    if part:
        yield tuple(part)
