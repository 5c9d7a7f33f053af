"""What the time goes into that somebody waits for a run: its steps, Prefect, and the start."""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

START, PREFECT = "start", "prefect"  # beside the names of the steps


class Clock:
    """Counts the seconds of one thing at a time, of the start where nothing else is named.

    So the start is Python's, the imports, the wait for other runs, and the little between steps.

    Args:
        began: when somebody began to wait, in seconds since the epoch; now, unless given.
    """

    def __init__(self, began: float | None = None) -> None:
        now = time.time()
        self._since = time.monotonic() - (now - (now if began is None else began))
        self._what = START
        self._seconds: dict[str, float] = {}

    @contextmanager
    def on(self, what: str) -> Generator[None]:
        """Count the time of the context for this alone: a step by its name, or Prefect."""
        before = self._what
        self._turn(what)
        try:
            yield
        finally:
            self._turn(before)

    @property
    def seconds(self) -> dict[str, float]:
        """By what they went into; their sum is the time since somebody began to wait."""
        self._turn(self._what)
        return dict(self._seconds)

    def _turn(self, what: str) -> None:
        now = time.monotonic()
        self._seconds[self._what] = self._seconds.get(self._what, 0.0) + now - self._since
        self._what, self._since = what, now


def work(seconds: Mapping[str, float]) -> dict[str, float]:
    """The seconds of the steps alone."""
    return {name: spent for name, spent in seconds.items() if name not in {START, PREFECT}}
