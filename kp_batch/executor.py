"""What a step is, the parts of its work, and what carries it out: `Local`, or see `executors/`."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

import polars as pl

from kp_batch.clock import Clock
from kp_batch.errors import StorageError, is_passing
from kp_batch.memory import available_bytes
from kp_batch.progress import warn
from kp_batch.text import one_line

# A lost packet is over in 5 s, a server's restart in a minute, and an NFS server lets its clients
# come back for 90 s after that: the last try is after six minutes.
RETRY_DELAYS_S = (5.0, 60.0, 300.0)
PART_BYTES = 1 << 30  # of memory that a part takes at the most and about, its model included

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class Step(Generic[P, R]):
    """One step of a run, or what it does with one part of its work.

    Its function is idempotent: it may fail anywhere, and be called again with the same arguments.
    """

    name: str  # in `runs.seconds` and in Prefect
    function: Callable[P, R]
    memory: int = PART_BYTES  # that it takes for a part
    on_card: bool = False  # whether it computes on a graphics card where there is one

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, again after each of `RETRY_DELAYS_S` where its failure may pass.

        Raises:
            StorageError: it failed each time; who called this step within another step's function
                does not try again.
        """
        delays = iter(RETRY_DELAYS_S)
        while True:
            try:
                return self.function(*args, **kwargs)
            except Exception as error:
                if not is_passing(error):
                    raise
                reason, delay = one_line(str(error)) or type(error).__name__, next(delays, None)
                if delay is None:
                    raise StorageError(
                        f"{self.name} failed {1 + len(RETRY_DELAYS_S)} times in "
                        f"{sum(RETRY_DELAYS_S) / 60:.0f} minutes, the last time with: {reason}; "
                        "run again when that disk or server is back"
                    ) from error
            warn(f"{self.name} failed, and is tried again in {delay:.0f} s: {reason}")
            time.sleep(delay)


class Executor(Protocol):
    """Carries steps out, here or elsewhere."""

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the step and return its result."""
        ...

    def map(
        self,
        step: Step[Concatenate[T, P], R],
        parts: Sequence[T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[R]:
        """Call the step for each part, in any order and wherever there is room.

        Args:
            step: takes one part. What it makes stands in files that the part names, so that what
                one worker began is done again by another.
            parts: values that say what to do: paths, ranges, hashes.
            args: further arguments, the same for all parts.
            kwargs: likewise.

        Returns:
            The results, small values, in the order of the parts.
        """
        ...


class Local:
    """Carries steps out in this process, as many parts at once as there are cores and memory for.

    Each has its share of the cores: NumPy's products take no more. So a part may read while another
    computes, and what runs on one core by its nature runs on all.
    """

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Executor`."""
        return step(*args, **kwargs)

    def map(
        self,
        step: Step[Concatenate[T, P], R],
        parts: Sequence[T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[R]:
        """See `Executor`; after an error, no further part is begun."""
        from threadpoolctl import threadpool_limits

        if not parts:
            return
        cores = pl.thread_pool_size()
        at_once = max(min(len(parts), cores, available_bytes() // step.memory), 1)
        share = cores // at_once
        with threadpool_limits(share, "blas"), ThreadPoolExecutor(at_once) as pool:
            # What is told within a part goes where this flow's log goes.
            begun = [
                pool.submit(copy_context().run, self.call, step, part, *args, **kwargs)
                for part in parts
            ]
            try:
                for each in begun:
                    yield each.result()
            finally:
                pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Timed:
    """Carries steps out with another executor, and counts the time inside each that is called."""

    executor: Executor
    clock: Clock

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Executor`."""

        @wraps(step.function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.clock.on(step.name):
                return step(*args, **kwargs)

        return self.executor.call(replace(step, function=timed), *args, **kwargs)

    def map(
        self,
        step: Step[Concatenate[T, P], R],
        parts: Sequence[T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[R]:
        """See `Executor`; the time is that of the step which maps."""
        return self.executor.map(step, parts, *args, **kwargs)


def cut(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[tuple[T, ...]]:
    """Cut items into parts of neighbours, each as large as it may be.

    Args:
        items: in the order that the parts keep.
        size: of an item.
        most: the size of a part, the sum of its items'; an item that is larger is a part by itself.
    """
    part: list[T] = []
    total = 0
    for item in items:
        if part and total + size(item) > most:
            yield tuple(part)
            part, total = [], 0
        part.append(item)
        total += size(item)
    if part:
        yield tuple(part)
