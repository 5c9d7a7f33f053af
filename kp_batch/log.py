"""All output for the user: answers, log lines (see `log_lines`), and a bar in a terminal.

Listeners hear the messages of their own context. The threads of a run share its context, so that
several runs in one process do not hear each other. Each message is also a record of the logger
"kp_batch"; if nobody configures logging, it is printed nowhere.

A long command keeps copies of the user's stdout and stderr, apart from what libraries print to.
"""

import logging
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TextIO

from kp_batch.errors import ResourceError
from kp_batch.log_lines import is_json, json_line_of, stderr_line
from kp_batch.text import count_of, drawn, printable_lines

_SECONDS_BETWEEN_LINES = 10.0
_LOG = logging.getLogger("kp_batch")
# Without a handler, Python prints warnings if nobody configures logging.
_LOG.addHandler(logging.NullHandler())


@dataclass
class _Streams:
    """The user's stdout and stderr, shared by all copies of one context."""

    out: TextIO | None
    err: TextIO | None


_STREAMS: ContextVar[_Streams | None] = ContextVar("streams", default=None)  # None: `sys` has them
_HEARERS: ContextVar[tuple[Callable[[logging.LogRecord], object], ...]] = ContextVar(
    "hearers", default=()
)
_BARS: ContextVar[bool | None] = ContextVar("bars", default=None)  # None: as a command shows them


def set_user_streams(out: TextIO | None, err: TextIO | None) -> None:
    """Set the user's stdout and stderr of this context; `sys` stays as it is."""
    _STREAMS.set(_Streams(out, err))


def user_out() -> TextIO | None:
    """Return the user's stdout; None if it is closed."""
    streams = _STREAMS.get()
    return streams.out if streams else sys.stdout


def user_err() -> TextIO | None:
    """Return the user's stderr; None if it is closed."""
    streams = _STREAMS.get()
    return streams.err if streams else sys.stderr


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text for the user at once, on stdout or stderr.

    Raises:
        BrokenPipeError: nobody reads the stream any more.
        ResourceError: it cannot be written.
    """
    _print(json_line_of(text, logging.INFO) if err and is_json() else text, err=err, nl=nl)


def echo_line(message: str, level: int = logging.INFO) -> None:
    """Print a message of the command on stderr; it begins with the name of the command.

    Raises:
        BrokenPipeError: nobody reads stderr any more.
        ResourceError: it cannot be written.
    """
    _print(stderr_line(message, level), err=True)


def _print(text: str, *, err: bool, nl: bool = True) -> None:
    stream = user_err() if err else user_out()
    if stream is None:  # print would use another stream
        return
    with writing_to("stderr" if err else "stdout"):
        print(drawn(text, stream), file=stream, end="\n" if nl else "", flush=True)


def echo_result(text: str) -> None:
    """Print the result of finished work on stdout; ignore a reader that has gone.

    Raises:
        ResourceError: it cannot be written.
    """
    try:
        echo(text)
    except BrokenPipeError:
        if streams := _STREAMS.get():
            streams.out = None
        else:
            set_user_streams(None, sys.stderr)


@contextmanager
def writing_to(name: str) -> Generator[None]:
    """Name the stream in the error if writing to it fails.

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
    """Log what the command does.

    Args:
        message: the text.
        always: whether `show_only_new_warnings` shows it, too.
        in_brief: whether it sums up other lines: it is shown only if these are left out.
    """
    _log(logging.INFO, message, always=always or in_brief, in_brief=in_brief)


def warn(message: str, *, repeated: bool = False, recurring: bool = False) -> None:
    """Log a warning.

    Args:
        message: the text.
        repeated: whether an earlier run gave it, too; see `show_only_new_warnings`.
        recurring: whether each run gives it until somebody fixes the cause; see
            `recurring_warnings`.
    """
    _log(logging.WARNING, message, repeated=repeated, recurring=recurring)


def _log(level: int, message: str, **kinds: bool) -> None:
    path, line, function, _ = _LOG.findCaller(stacklevel=3)
    text = (printable_lines(message),)
    _pass_on(_LOG.makeRecord(_LOG.name, level, path, line, "%s", text, None, function, kinds))


def _pass_on(record: logging.LogRecord) -> None:
    """Pass a message to the listeners of this context, whatever its level, and log it."""
    for hear in _HEARERS.get():
        hear(record)
    if _LOG.isEnabledFor(record.levelno):
        _LOG.handle(record)


@contextmanager
def _heard_by(hear: Callable[[logging.LogRecord], object]) -> Generator[None]:
    """Pass each message of this context to a function before it is logged."""
    token = _HEARERS.set((*_HEARERS.get(), hear))
    try:
        yield
    finally:
        _HEARERS.reset(token)


@contextmanager
def listening(*, progress: bool = False) -> Generator[list[str]]:
    """Collect the warnings of work that no command started, including those of its threads.

    Args:
        progress: whether to show progress bars, in a notebook or on stderr.
    """
    warnings: list[str] = []

    def hear(record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            warnings.append(record.getMessage())

    token = _BARS.set(progress)
    try:
        with _heard_by(hear):
            yield warnings
    finally:
        _BARS.reset(token)


@contextmanager
def recurring_warnings(known: Collection[str]) -> Generator[list[str]]:
    """Collect the SHA-256 of recurring warnings, and mark the known ones as repeated."""
    from hashlib import sha256

    digests: list[str] = []

    def note(record: logging.LogRecord) -> None:
        if getattr(record, "recurring", False):
            digests.append(sha256(record.getMessage().encode()).hexdigest())
            record.__dict__["repeated"] = digests[-1] in known

    with _heard_by(note):
        yield digests


def add_handler(handler: logging.Handler) -> None:
    """Send the log to a handler, and no longer to those of the root logger."""
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False


def show_on_stderr() -> None:
    """Show the log on stderr, as the command line does."""
    handler = _OnStderr(user_err())
    handler.setFormatter(_LineFormatter())
    handler.addFilter(_is_at_length)
    add_handler(handler)


def show_only_new_warnings() -> None:
    """Show only what is new on stderr; see `warn` and `info`."""
    for handler in _LOG.handlers:
        if isinstance(handler, _OnStderr):
            handler.removeFilter(_is_at_length)
            handler.addFilter(_is_new)


@contextmanager
def capture() -> Generator[list[logging.LogRecord]]:
    """Collect the log records, for another process to repeat."""
    records: list[logging.LogRecord] = []
    with _heard_by(records.append):
        yield records


def replay_log(records: Iterable[logging.LogRecord]) -> None:
    """Log the records of another process."""
    for record in records:
        _pass_on(record)


class _OnStderr(logging.StreamHandler[TextIO]):
    """The log that the user sees; with it come progress bars, unless only what is new is shown."""


def _is_at_length(record: logging.LogRecord) -> bool:
    return not getattr(record, "in_brief", False)


def _is_new(record: logging.LogRecord) -> bool:
    if record.levelno >= logging.WARNING:
        return not getattr(record, "repeated", False)
    return getattr(record, "always", False)


def _shows_bars() -> bool:
    """Whether to show bars: on request, or in a terminal unless its lines are few, or JSON."""
    if (is_asked := _BARS.get()) is not None:
        return is_asked
    of_command = [each for each in _LOG.handlers if isinstance(each, _OnStderr)]
    is_quiet = any(_is_new in each.filters for each in of_command)
    return bool(of_command) and _is_terminal() and not (is_quiet or is_json())


def is_watched() -> bool:
    """Whether a person waits for the work: at a terminal, or in an interactive Python."""
    return hasattr(sys, "ps1") or _is_terminal()


def _is_terminal() -> bool:
    err = user_err()
    return err is not None and err.isatty()


def _bar(label: str, total: int, unit: str) -> Any:
    from importlib.util import find_spec

    if _BARS.get() and find_spec("ipywidgets"):  # without it, tqdm.auto warns in a notebook
        from tqdm.auto import tqdm
    else:
        from tqdm import tqdm
    name, noun = f"kp-batch: {label}", f" {unit}s"
    return tqdm(total=total, desc=name, unit=noun, file=user_err(), leave=False)


class _LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return stderr_line(record.getMessage(), record.levelno, record.created)


class Progress:
    """Show the progress of a step, with its rate and the time left."""

    def __init__(self, label: str, total: int, unit: str, *, at_once: bool) -> None:
        self._bar = _bar(label, total, unit) if _shows_bars() else None
        self._label, self._total, self._unit = label, total, unit
        self._done, self._began = 0, time.monotonic()
        self._logged = self._began
        if self._bar is None and total and at_once:
            info(f"{label}: {count_of(total, unit)}")

    def add(self, count: int) -> None:
        """Count more units as done."""
        self._done += count
        if self._bar is not None:
            self._bar.update(count)
            return
        now = time.monotonic()
        if now - self._logged >= _SECONDS_BETWEEN_LINES:
            self._logged = now
            info(f"{self._label}: {self._meter(now - self._began)}")

    def _meter(self, seconds: float) -> str:
        from tqdm import tqdm

        unit = f" {self._unit}s"
        return str(tqdm.format_meter(self._done, self._total, seconds, ncols=0, unit=unit))

    def close(self) -> None:
        """Clear the bar."""
        if self._bar is not None:
            self._bar.close()


def progress(label: str, total: int, unit: str, *, at_once: bool = True) -> closing[Progress]:
    """Show the progress of a step until it ends.

    Args:
        label: a verb, such as `embed`.
        total: the number of units.
        unit: their noun in the singular.
        at_once: whether to log the beginning of the step if no bar is shown. Otherwise only long
            steps are logged.
    """
    return closing(Progress(label, total, unit, at_once=at_once))
