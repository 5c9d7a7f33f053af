"""Shows on stderr how far a run is: a bar in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from tqdm import tqdm

from kp_batch.text import printable_lines

_SECONDS_BETWEEN_LINES = 10.0


def say(message: str) -> None:
    """Write a message to stderr."""
    print(f"kp-batch: {printable_lines(message)}", file=sys.stderr, flush=True)  # noqa: T201


class Progress:
    """Shows how far a step is, with its rate and the time left."""

    def __init__(self, label: str, total: int, unit: str) -> None:
        self._bar = tqdm(
            total=total,
            desc=f"kp-batch: {label}",
            unit=f" {unit}",
            file=sys.stderr,
            disable=not sys.stderr.isatty(),
            leave=False,
        )
        self._label, self._total, self._unit = label, total, unit
        self._done, self._began = 0, time.monotonic()
        self._spoken = self._began
        if self._bar.disable and total:
            say(f"{label}: {total:,} {unit}")

    def add(self, count: int) -> None:
        """Count more units as done."""
        self._done += count
        self._bar.update(count)
        now = time.monotonic()
        if self._bar.disable and now - self._spoken >= _SECONDS_BETWEEN_LINES:
            self._spoken = now
            meter = tqdm.format_meter(
                self._done, self._total, now - self._began, ncols=0, unit=f" {self._unit}"
            )
            say(f"{self._label}: {meter}")

    def close(self) -> None:
        """Clear the bar."""
        self._bar.close()


@contextmanager
def progress(label: str, total: int, unit: str) -> Generator[Progress]:
    """Show a step of `total` units until it ends."""
    shown = Progress(label, total, unit)
    try:
        yield shown
    finally:
        shown.close()
