"""What a user is told: answers, log lines, and a bar in a terminal.

A long command keeps the user's stdout and stderr apart from where libraries print.
"""

import logging
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TextIO

from kp_batch.errors import ResourceError
from kp_batch.text import count_of, printable_lines

_SECONDS_BETWEEN_LINES = 10.0
_LOG = logging.getLogger("kp_batch")
_MOVED: list[tuple[TextIO | None, TextIO | None]] = []


def keep_apart(out: TextIO | None, err: TextIO | None) -> None:
    """Have the user's stdout and stderr be these from now on, whatever `sys` has."""
    _MOVED[:] = [(out, err)]


def user_out() -> TextIO | None:
    """The user's stdout; None if it is closed."""
    return _MOVED[0][0] if _MOVED else sys.stdout


def user_err() -> TextIO | None:
    """The user's stderr; None if it is closed."""
    return _MOVED[0][1] if _MOVED else sys.stderr


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Tell the user something, at once.

    Args:
        text: what it is.
        err: whether on stderr.
        nl: whether a new line follows.

    Raises:
        BrokenPipeError: who reads it has left.
        ResourceError: it cannot be written.
    """
    stream = user_err() if err else user_out()
    if stream is None:  # print would take another
        return
    with telling("stderr" if err else "stdout"):
        print(text, file=stream, end="\n" if nl else "", flush=True)


@contextmanager
def telling(name: str) -> Generator[None]:
    """Name the stream that is written where that fails.

    Raises:
        BrokenPipeError: who reads it has left.
        ResourceError: it cannot be written.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ResourceError(f"{name} cannot be written: {error.strerror}") from error


def info(message: str) -> None:
    """Tell what is done."""
    _LOG.info("%s", printable_lines(message))


def warn(message: str, *, repeated: bool = False) -> None:
    """Tell what may be wrong.

    Args:
        message: what it is.
        repeated: whether it was so at the last done run, too: `show_only_new_warnings` leaves that
            out.
    """
    _LOG.warning("%s", printable_lines(message), extra={"repeated": repeated})


def add_handler(handler: logging.Handler) -> None:
    """Give a handler all that is told from now on, which the root logger's need not repeat."""
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False


def show_on_stderr() -> None:
    """Show on stderr what is told from now on, as the command line does."""
    handler = _OnStderr(user_err())
    handler.setFormatter(_Line())
    add_handler(handler)


def show_only_new_warnings() -> None:
    """Show on stderr from now on only what may be wrong, and was not so at the last done run."""
    for handler in _LOG.handlers:
        if isinstance(handler, _OnStderr):
            handler.addFilter(_is_news)


@contextmanager
def capture() -> Generator[list[logging.LogRecord]]:
    """Hear what is told meanwhile, for another process to repeat."""
    handler = _Kept()
    add_handler(handler)
    try:
        yield handler.told
    finally:
        _LOG.removeHandler(handler)


def replay_log(told: Iterable[logging.LogRecord]) -> None:
    """Tell here what was told elsewhere."""
    for record in told:
        _LOG.handle(record)


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record)


class _OnStderr(logging.StreamHandler[TextIO]):
    """What the user sees; bars are shown with it, unless it shows news alone."""


def _is_news(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING and not getattr(record, "repeated", False)


def _shows_bars() -> bool:
    shown = (handler for handler in _LOG.handlers if isinstance(handler, _OnStderr))
    err = user_err()
    return err is not None and err.isatty() and not any(each.filters for each in shown)


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        what = "warning: " if record.levelno >= logging.WARNING else ""
        return f"kp-batch: {what}{record.getMessage()}"


class Progress:
    """Shows how far a step is, with its rate and the time left."""

    def __init__(self, label: str, total: int, unit: str, *, at_once: bool) -> None:
        from tqdm import tqdm

        self._bar = tqdm(
            total=total,
            desc=f"kp-batch: {label}",
            unit=f" {unit}s",
            file=user_err(),
            disable=not _shows_bars(),
            leave=False,
        )
        self._label, self._total, self._unit = label, total, unit
        self._done, self._began = 0, time.monotonic()
        self._spoken = self._began
        if self._bar.disable and total and at_once:
            info(f"{label}: {count_of(total, unit)}")

    def add(self, count: int) -> None:
        """Count more units as done."""
        self._done += count
        self._bar.update(count)
        now = time.monotonic()
        if self._bar.disable and now - self._spoken >= _SECONDS_BETWEEN_LINES:
            self._spoken = now
            meter = self._bar.format_meter(
                self._done, self._total, now - self._began, ncols=0, unit=f" {self._unit}s"
            )
            info(f"{self._label}: {meter}")

    def close(self) -> None:
        """Clear the bar."""
        self._bar.close()


@contextmanager
def progress(label: str, total: int, unit: str, *, at_once: bool = True) -> Generator[Progress]:
    """Show a step until it ends.

    Args:
        label: what it does.
        total: how many units it does.
        unit: in the singular.
        at_once: whether a log is told that it begins, and not only how far a long one is.
    """
    shown = Progress(label, total, unit, at_once=at_once)
    try:
        yield shown
    finally:
        shown.close()
