"""What a step is, the parts of its work, and what carries it out: `Local`, or see `executors/`."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from errno import EACCES, EDQUOT, EISDIR, ENAMETOOLONG, ENOENT, ENOSPC, ENOTDIR, EPERM, EROFS
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

RETRY_DELAY_S = 5.0
# What a second try would meet again: a full disk, a missing permission, something in the way.
_LASTING = {ENOSPC, EDQUOT, EROFS, EACCES, EPERM, ENOENT, ENOTDIR, EISDIR, ENAMETOOLONG}

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class Step(Generic[P, R]):
    """One step of a run, or what it does with one part of its work."""

    name: str  # in `runs.seconds` and in Prefect
    function: Callable[P, R]
    retries: int = 0  # further tries, after the disk or the network failed


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
            step: an idempotent function of one part. What it makes stands in files that the part
                names, so that what one worker began is done again by another.
            parts: values that say what to do: paths, ranges, hashes.
            args: further arguments, the same for all parts.
            kwargs: likewise.

        Returns:
            The results, small values, in the order of the parts.
        """
        ...


def is_passing(error: object) -> bool:
    """Whether a failure may be over soon: of the disk or the network, not of the logic."""
    return isinstance(error, OSError) and error.errno not in _LASTING


class Local:
    """Carries steps out in this process, parts one after the other."""

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Executor`; a step is tried again as often as it says."""
        for _ in range(step.retries):
            try:
                return step.function(*args, **kwargs)
            except OSError as error:
                if not is_passing(error):
                    raise
                time.sleep(RETRY_DELAY_S)
        return step.function(*args, **kwargs)

    def map(
        self,
        step: Step[Concatenate[T, P], R],
        parts: Sequence[T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[R]:
        """See `Executor`."""
        for part in parts:
            yield self.call(step, part, *args, **kwargs)


@dataclass(frozen=True)
class Timed:
    """Carries steps out with another executor, and notes the seconds of each that is called."""

    executor: Executor
    seconds: dict[str, float]  # by the step's name

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Executor`."""
        began = time.monotonic()
        try:
            return self.executor.call(step, *args, **kwargs)
        finally:
            self.seconds[step.name] = time.monotonic() - began

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
