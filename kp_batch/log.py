"""All output for the user: answers, log lines, and a progress bar in a terminal.

A long command has copies of the user's stdout and stderr, apart from where libraries print.
"""

import logging
import sys
import time
from collections.abc import Collection, Generator, Iterable
from contextlib import closing, contextmanager
from typing import TextIO

from kp_batch.errors import ResourceError
from kp_batch.text import count_of, drawn, printable_lines

_SECONDS_BETWEEN_LINES = 10.0
_LOG = logging.getLogger("kp_batch")
_USER_STREAMS: list[tuple[TextIO | None, TextIO | None]] = []  # one pair, unless `sys` has them


def set_user_streams(out: TextIO | None, err: TextIO | None) -> None:
    """Make these the user's stdout and stderr from now on, whatever `sys` has."""
    _USER_STREAMS[:] = [(out, err)]


def user_out() -> TextIO | None:
    """The user's stdout; None if it is closed."""
    return _USER_STREAMS[0][0] if _USER_STREAMS else sys.stdout


def user_err() -> TextIO | None:
    """The user's stderr; None if it is closed."""
    return _USER_STREAMS[0][1] if _USER_STREAMS else sys.stderr


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text for the user, at once: on stdout, or on stderr, and a new line unless told.

    Raises:
        BrokenPipeError: nobody reads the stream any more.
        ResourceError: it cannot be written.
    """
    stream = user_err() if err else user_out()
    if stream is None:  # print would take another
        return
    with writing_to("stderr" if err else "stdout"):
        print(drawn(text, stream), file=stream, end="\n" if nl else "", flush=True)


def echo_result(text: str) -> None:
    """Print on stdout the result of what is done: it stands, whether anybody reads it or not.

    Raises:
        ResourceError: it cannot be written.
    """
    try:
        echo(text)
    except BrokenPipeError:
        set_user_streams(None, user_err())


@contextmanager
def writing_to(name: str) -> Generator[None]:
    """Name the stream in the error where writing to it fails.

    Raises:
        BrokenPipeError: nobody reads the stream any more.
        ResourceError: it cannot be written.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"{name} cannot be written: {error.strerror}"
        raise ResourceError(message, code="output") from error


def info(message: str, *, always: bool = False, in_brief: bool = False) -> None:
    """Log what the command does, which `show_only_new_warnings` leaves out unless `always`.

    In brief is what other lines tell at length: it is shown where these are left out.
    """
    extra = {"always": always or in_brief, "in_brief": in_brief}
    _LOG.info("%s", printable_lines(message), extra=extra)


def warn(message: str, *, repeated: bool = False, standing: bool = False) -> None:
    """Log a warning, which may be one of the run before, too: see `show_only_new_warnings`.

    A standing one is of what stays until somebody mends it: see `remembering`.
    """
    extra = {"repeated": repeated, "standing": standing}
    _LOG.warning("%s", printable_lines(message), extra=extra)


@contextmanager
def remembering(told: Collection[str]) -> Generator[list[str]]:
    """Collect the SHA-256 of standing warnings meanwhile; those of before are repeated."""
    from hashlib import sha256

    digests: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        if getattr(record, "standing", False):
            digests.append(sha256(record.getMessage().encode()).hexdigest())
            record.__dict__["repeated"] = digests[-1] in told
        return True

    _LOG.addFilter(note)
    try:
        yield digests
    finally:
        _LOG.removeFilter(note)


def add_handler(handler: logging.Handler) -> None:
    """Send the log to a handler from now on, and no longer to those of the root logger."""
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False


def show_on_stderr() -> None:
    """Show the log on stderr from now on, as the command line does."""
    handler = _OnStderr(user_err())
    handler.setFormatter(_Line())
    handler.addFilter(_is_at_length)
    add_handler(handler)


def show_only_new_warnings() -> None:
    """Show on stderr from now on only what is new: see `warn` and `info`."""
    for handler in _LOG.handlers:
        if isinstance(handler, _OnStderr):
            handler.removeFilter(_is_at_length)
            handler.addFilter(_is_new)


@contextmanager
def capture() -> Generator[list[logging.LogRecord]]:
    """Collect the log records meanwhile, for another process to repeat."""
    from logging.handlers import BufferingHandler

    handler = BufferingHandler(sys.maxsize)
    add_handler(handler)
    try:
        yield handler.buffer
    finally:
        _LOG.removeHandler(handler)


def replay_log(records: Iterable[logging.LogRecord]) -> None:
    """Log here what another process logged."""
    for record in records:
        _LOG.handle(record)


class _OnStderr(logging.StreamHandler[TextIO]):
    """The log that the user sees; unless only what is new is shown, progress bars are, too."""


def _is_at_length(record: logging.LogRecord) -> bool:
    return not getattr(record, "in_brief", False)


def _is_new(record: logging.LogRecord) -> bool:
    if record.levelno >= logging.WARNING:
        return not getattr(record, "repeated", False)
    return getattr(record, "always", False)


def _shows_bars() -> bool:
    err = user_err()
    is_quiet = any(_is_new in each.filters for each in _LOG.handlers)
    return err is not None and err.isatty() and not is_quiet


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = "warning: " if record.levelno >= logging.WARNING else ""
        return f"kp-batch: {level}{record.getMessage()}"


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
        self._logged = self._began
        if self._bar.disable and total and at_once:
            info(f"{label}: {count_of(total, unit)}")

    def add(self, count: int) -> None:
        """Count more units as done."""
        self._done += count
        self._bar.update(count)
        now = time.monotonic()
        if self._bar.disable and now - self._logged >= _SECONDS_BETWEEN_LINES:
            self._logged = now
            meter = self._bar.format_meter(
                self._done, self._total, now - self._began, ncols=0, unit=f" {self._unit}s"
            )
            info(f"{self._label}: {meter}")

    def close(self) -> None:
        """Clear the bar."""
        self._bar.close()


def progress(label: str, total: int, unit: str, *, at_once: bool = True) -> closing[Progress]:
    """Show a step until it ends.

    Args:
        label: the verb.
        total: the number of units.
        unit: their noun in the singular.
        at_once: without a bar, whether to log the step's begin, and not only how far a long one is.
    """
    return closing(Progress(label, total, unit, at_once=at_once))
