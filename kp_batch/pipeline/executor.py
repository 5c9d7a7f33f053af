"""What a step is, and what calls one: `Local` here, others in `executors/`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from errno import ENOSPC
from typing import Generic, ParamSpec, Protocol, TypeVar

RETRY_DELAY_S = 5.0

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Step(Generic[P, R]):
    """One step of a run."""

    name: str  # in `runs.seconds` and in Prefect
    function: Callable[P, R]
    retries: int = 0  # further tries, after the disk or the network failed


class Executor(Protocol):
    """Calls steps, here or elsewhere."""

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the step and return its result."""
        ...


def is_passing(error: object) -> bool:
    """Whether a failure may be over soon: of the disk or the network, not of the logic."""
    return isinstance(error, OSError) and error.errno != ENOSPC


class Local:
    """Calls steps in this process."""

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


@dataclass(frozen=True)
class Timed:
    """Calls steps with another executor, and notes the seconds of each."""

    executor: Executor
    seconds: dict[str, float]  # by the step's name

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Executor`."""
        began = time.monotonic()
        try:
            return self.executor.call(step, *args, **kwargs)
        finally:
            self.seconds[step.name] = time.monotonic() - began
