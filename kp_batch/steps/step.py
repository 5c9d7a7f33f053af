"""The steps of a run, their time, and the parts of their work.

A run calls its steps plainly; each is timed, tried again, and a task where Prefect runs them. The
parts of a step are mapped by an executor: threads of this process, or see `ray`.
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
from kp_batch.steps.cores import computing_on
from kp_batch.stopping import look, parts_in_threads, pause, result_of
from kp_batch.text import one_line
from kp_batch.warehouse.last_run import the_try

# A lost packet is over in 5 s, a server's restart in a minute, and an NFS server lets its clients
# come back for 90 s after that: the last try is after six minutes.
RETRY_DELAYS_S = (5.0, 60.0, 300.0)
PART_BYTES = 1 << 30  # of memory that a part takes at the most and about, its model included
AHEAD = 2  # parts of an iterator that are begun for each worker: one to work on, one to go on with
START, PREFECT = "start", "prefect"  # activities besides the steps

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Caller = Callable[[str, Callable[..., Any]], Callable[..., Any]]


class Clock:
    """Counts the seconds of one activity at a time: a step by its name, Prefect, or the start.

    The start is all else: Python, the imports, the wait for other runs, the time between steps.

    Args:
        began: when somebody began to wait, in seconds since the epoch; None: now.
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
        """By activity; their sum is the time since somebody began to wait."""
        self._switch(self._activity)
        return dict(self._seconds)

    @property
    def rounded(self) -> dict[str, float]:
        """The same to the millisecond, as results have them."""
        return {activity: round(spent, 3) for activity, spent in self.seconds.items()}

    def _switch(self, activity: str) -> None:
        now = time.monotonic()
        self._seconds[self._activity] = self._seconds.get(self._activity, 0.0) + now - self._since
        self._activity, self._since = activity, now


def step_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    """The seconds of the steps alone."""
    return {name: spent for name, spent in seconds.items() if name not in {START, PREFECT}}


# The clock and the caller of the steps of the open run. None within a step: one that is called
# there is a part of it.
_OPEN: ContextVar[tuple[Clock, Caller] | None] = ContextVar("open", default=None)


@contextmanager
def timed(began: float | None = None, caller: Caller | None = None) -> Generator[Clock]:
    """Time the steps that are called meanwhile: by the clock that runs already, or by a new one.

    Args:
        began: as for `Clock`, of a new one.
        caller: takes a step's name and its function, returns the function to call in its place.
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
    """Call a function, again after each of `RETRY_DELAYS_S` where its failure may pass.

    Where a person waits, who can run again, it is called once.

    Raises:
        StorageError: it failed each time; a caller within another step does not try again.
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
                    "or server is back"
                ) from error
        warn(f"{name} failed, and is tried again in {delay:.0f} s: {reason}")
        pause(delay)


@dataclass(frozen=True)
class Step(Generic[P, R]):
    """A function that is one step of a run, or does one part of its work; see `step`."""

    name: str  # in `runs.seconds` and in Prefect
    function: Callable[P, R]
    memory: int = PART_BYTES  # that it takes for a part
    on_gpu: bool = False  # whether it computes on a GPU where there is one
    at_once: int | None = None  # parts at once in one process; None: as many as cores

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, see `retried`; timed if a run is open and no step under way."""
        opened = _OPEN.get()
        if opened is None:
            return retried(self.name, self.function, *args, **kwargs)
        clock, caller = opened

        @wraps(self.function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            if this := the_try():
                this.at(self.name)
            look()
            with clock.on(self.name), _opened(None):
                return retried(self.name, self.function, *args, **kwargs)

        return caller(self.name, called)(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        """Pickle it by name: by value, its function would bring all its module."""
        return _imported, (self.function.__module__, self.function.__qualname__)


def _imported(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def step(
    name: str, *, memory: int = PART_BYTES, on_gpu: bool = False, at_once: int | None = None
) -> Callable[[Callable[P, R]], Step[P, R]]:
    """Make a function a `Step`; called again, wherever it failed, it does the same."""
    return lambda function: Step(name, function, memory, on_gpu, at_once)


class Executor(Protocol):
    """Carries out the parts of a step."""

    def has_gpu(self) -> bool:
        """Whether steps that can compute on a GPU do."""
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
            step: takes one part. It writes files that are named by the part, so that another worker
                can repeat it.
            parts: the values to work on. All parts of a sequence are begun as soon as there is
                room, so these, and their results, are small values: paths, ranges, hashes. Those
                of an iterator are taken one by one, `AHEAD` for each that is worked on, so that
                either may be large: nothing piles up between an iterator and who takes the results.
            args: further arguments, the same for all parts.
            kwargs: likewise.

        Returns:
            The results, in the order of the parts. Closed, or after an error, it begins no further
            part, and closes the generator of the parts. Whoever may leave it before its end closes
            it: see `closing`.
        """
        ...


@dataclass(frozen=True)
class ThreadExecutor:
    """Carries out parts in threads, as many at once as there are cores and memory for.

    Each has its share of the cores: NumPy's products take no more. So a part may read while another
    computes, and code that runs on one core runs on all.

    Args:
        cores: None: those that this process may use.
        memory: in bytes; None: that of the machine, or of the container.
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
        """See `Executor`; left before its end, it waits until those under way have ended, too.

        They look for that between their batches: see `stopping`.
        """
        if not parts:
            return
        cores = self.cores or _cores()
        at_once = max(min(step.at_once or cores, (self.memory or _memory()) // step.memory), 1)
        if isinstance(parts, Sequence):
            at_once = min(at_once, len(parts))
        # Parts count as part of the step that maps; their messages go where this flow's log goes.
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
    """Begin parts ahead of those that are taken, in their order; see `Executor.map`.

    A generator of parts is closed: it may be another map, whose limits end before those of the map
    that began it.

    Args:
        begin: begins a part, and returns a handle on its result.
        parts: all of a sequence are begun at once, of an iterator `AHEAD` for each worker.
        at_once: the workers.
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
    """Cut items into parts of neighbours, each as large as it may be.

    Args:
        items: in the order that the parts keep.
        size: of an item.
        most: the size of a part, the sum of its items'; a larger item is a part by itself.
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
