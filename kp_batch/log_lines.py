"""Lines on stderr: words for people, or JSON objects for a log collector.

An environment variable chooses, because lines are printed before a command has read its options,
and by its supervisor. A line as JSON names the run and the step in which the command is.
"""

import json
import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime

LOG_FORMAT = "KP_BATCH_LOG_FORMAT"
FORMATS = ("text", "json")


@dataclass
class _CommandPlace:
    """Where a command is, shared by all copies of its context."""

    on_change: Callable[..., object] | None  # takes the new values as keywords
    run_id: str | None = None
    step: str | None = None


_PLACE: ContextVar[_CommandPlace | None] = ContextVar("place", default=None)


def follow(on_change: Callable[..., object] | None = None) -> None:
    """Name the run and the step in the lines of this context from now on.

    Args:
        on_change: takes each change, as keywords.
    """
    _PLACE.set(_CommandPlace(on_change))


def note_place(**values: str | None) -> None:
    """Note the current `run_id` or `step`; nothing happens unless the context follows them."""
    if place := _PLACE.get():
        vars(place).update(values)
        if place.on_change:
            place.on_change(**values)


@contextmanager
def in_step(name: str) -> Generator[None]:
    """Note the step of the context; after an error it stays, for the line of that error."""
    note_place(step=name)
    yield
    note_place(step=None)


def is_json() -> bool:
    """Whether each line is a JSON object."""
    return os.environ.get(LOG_FORMAT) == "json"


def stderr_line(message: str, level: int, at: float | None = None) -> str:
    """Format a message that begins with the name of the command.

    Args:
        message: the text.
        level: a level of `logging`.
        at: when it was logged, in seconds since the epoch; None for now.
    """
    if is_json():
        return json_line_of(message, level, at)
    return f"kp-batch: {'warning: ' if level == logging.WARNING else ''}{message}"


def json_line_of(message: str, level: int, at: float | None = None) -> str:
    """Format a message as a JSON object; see `stderr_line`."""
    time = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    place = _PLACE.get()
    values = {
        "time": time.isoformat(timespec="milliseconds"),
        "run_id": place.run_id if place else None,
        "step": place.step if place else None,
        "level": logging.getLevelName(level).lower(),
        "message": message,
    }
    return json.dumps(values)
