"""All output for the user: answers, log lines, and a progress bar in a terminal.

Who hears a message depends on the context in which it is told, and the threads of a run have its
context: several runs of a process do not hear each other. Besides, it is a record of the logger
"kp_batch", for whoever configures logging; where nobody does, it is printed nowhere.

A long command has copies of the user's stdout and stderr, apart from where libraries print.
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
from kp_batch.text import count_of, drawn, printable_lines

_SECONDS_BETWEEN_LINES = 10.0
_LOG = logging.getLogger("kp_batch")
# Without a handler, Python prints warnings where nobody configures logging.
_LOG.addHandler(logging.NullHandler())


@dataclass
class _Streams:
    """The user's stdout and stderr: shared by the contexts that are copies of one."""

    out: TextIO | None
    err: TextIO | None


_STREAMS: ContextVar[_Streams | None] = ContextVar("streams", default=None)  # None: `sys` has them
_HEARERS: ContextVar[tuple[Callable[[logging.LogRecord], object], ...]] = ContextVar(
    "hearers", default=()
)
_BARS: ContextVar[bool | None] = ContextVar("bars", default=None)  # None: as a command shows them


def set_user_streams(out: TextIO | None, err: TextIO | None) -> None:
    """Make these the user's stdout and stderr in this context, whatever `sys` has."""
    _STREAMS.set(_Streams(out, err))


def user_out() -> TextIO | None:
    """The user's stdout; None if it is closed."""
    streams = _STREAMS.get()
    return streams.out if streams else sys.stdout


def user_err() -> TextIO | None:
    """The user's stderr; None if it is closed."""
    streams = _STREAMS.get()
    return streams.err if streams else sys.stderr


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
        if streams := _STREAMS.get():
            streams.out = None
        else:
            set_user_streams(None, sys.stderr)


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
    _tell(logging.INFO, message, always=always or in_brief, in_brief=in_brief)


def warn(message: str, *, repeated: bool = False, standing: bool = False) -> None:
    """Log a warning, which may be one of the run before, too: see `show_only_new_warnings`.

    A standing one is of what stays until somebody mends it: see `remembering`.
    """
    _tell(logging.WARNING, message, repeated=repeated, standing=standing)


def _tell(level: int, message: str, **kinds: bool) -> None:
    path, line, function, _ = _LOG.findCaller(stacklevel=3)
    text = (printable_lines(message),)
    _pass_on(_LOG.makeRecord(_LOG.name, level, path, line, "%s", text, None, function, kinds))


def _pass_on(record: logging.LogRecord) -> None:
    """Let who listens in this context hear a message, whatever logging leaves out; log it."""
    for hear in _HEARERS.get():
        hear(record)
    if _LOG.isEnabledFor(record.levelno):
        _LOG.handle(record)


@contextmanager
def _heard_by(hear: Callable[[logging.LogRecord], object]) -> Generator[None]:
    """Let a function hear the messages of this context meanwhile, before they are logged."""
    token = _HEARERS.set((*_HEARERS.get(), hear))
    try:
        yield
    finally:
        _HEARERS.reset(token)


@contextmanager
def listening(*, progress: bool = False) -> Generator[list[str]]:
    """Collect the warnings of the work meanwhile, in its threads as well, as no command does it.

    Args:
        progress: whether its progress bars are shown: a notebook's, or on stderr.
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
def remembering(told: Collection[str]) -> Generator[list[str]]:
    """Collect the SHA-256 of standing warnings meanwhile; those of before are repeated."""
    from hashlib import sha256

    digests: list[str] = []

    def note(record: logging.LogRecord) -> None:
        if getattr(record, "standing", False):
            digests.append(sha256(record.getMessage().encode()).hexdigest())
            record.__dict__["repeated"] = digests[-1] in told

    with _heard_by(note):
        yield digests


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
    records: list[logging.LogRecord] = []
    with _heard_by(records.append):
        yield records


def replay_log(records: Iterable[logging.LogRecord]) -> None:
    """Log here what another process logged."""
    for record in records:
        _pass_on(record)


class _OnStderr(logging.StreamHandler[TextIO]):
    """The log that the user sees; unless only what is new is shown, progress bars are, too."""


def _is_at_length(record: logging.LogRecord) -> bool:
    return not getattr(record, "in_brief", False)


def _is_new(record: logging.LogRecord) -> bool:
    if record.levelno >= logging.WARNING:
        return not getattr(record, "repeated", False)
    return getattr(record, "always", False)


def _shows_bars() -> bool:
    """Whether bars are asked for; a command shows them in a terminal, unless it is quiet."""
    if (is_asked := _BARS.get()) is not None:
        return is_asked
    of_command = [each for each in _LOG.handlers if isinstance(each, _OnStderr)]
    is_quiet = any(_is_new in each.filters for each in of_command)
    return bool(of_command) and _is_terminal() and not is_quiet


def is_watched() -> bool:
    """Whether a person waits for the work: at a terminal, or in an interactive Python."""
    return hasattr(sys, "ps1") or _is_terminal()


def _is_terminal() -> bool:
    err = user_err()
    return err is not None and err.isatty()


def _bar(label: str, total: int, unit: str) -> Any:
    from importlib.util import find_spec

    if _BARS.get() and find_spec("ipywidgets"):  # without, tqdm.auto warns of that in a notebook
        from tqdm.auto import tqdm
    else:
        from tqdm import tqdm
    name, noun = f"kp-batch: {label}", f" {unit}s"
    return tqdm(total=total, desc=name, unit=noun, file=user_err(), leave=False)


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = "warning: " if record.levelno >= logging.WARNING else ""
        return f"kp-batch: {level}{record.getMessage()}"


class Progress:
    """Shows how far a step is, with its rate and the time left."""

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
    """Show a step until it ends.

    Args:
        label: the verb.
        total: the number of units.
        unit: their noun in the singular.
        at_once: without a bar, whether to log the step's begin, and not only how far a long one is.
    """
    return closing(Progress(label, total, unit, at_once=at_once))
