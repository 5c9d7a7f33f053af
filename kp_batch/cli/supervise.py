"""Run a long command in its own process, end it on signals, and clean up after it.

Python handles no signal while a library works, the system kills a process that uses too much
memory, and a run under Prefect may start a server. So a child process does all the work, in its own
session, with its own temporary folder. The parent waits; on a signal it kills the child's process
group. That is safe at any moment, since only the swap of manifest.json publishes anything. If the
parent dies, the child reads the end of a pipe and kills its group itself.

The child's own output goes to the user's streams: see `log`. The output of libraries, and of
Prefect's server, goes to a file in the temporary folder, or to the log of the warehouse.
Descendants with their own process groups, such as Ray's, end by themselves when their parent is
gone.
"""

import json
import logging
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from io import TextIOWrapper
from math import inf
from pathlib import Path
from typing import Any, NoReturn, TextIO

from kp_batch.errors import (
    TEMPORARY_FOLDERS,
    BusyError,
    KpBatchError,
    ResourceError,
    explain_error,
)
from kp_batch.files import HALF_WRITTEN, note_leftovers_in, remove_leftovers, temporary_sibling
from kp_batch.log import echo_line, set_user_streams, user_err, user_out
from kp_batch.log_lines import follow, note_place
from kp_batch.text import format_duration, printable_lines
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.run_result import RunResult, now

# Files in the child's temporary folder: a list of the files that it would leave elsewhere if it is
# killed, and the output of libraries, or a link to it.
_LEFTOVERS, _OUTPUT = "left", "printed"
_MAX_WAIT_S = 1e6  # the longest single wait
_NOTHING: list[int] = []
Answer = Callable[[RunResult], None]  # see `supervised`
_PIPES: list[int] = []  # to the supervisor of this process; at most one
SENT: dict[str, Any] = {}  # the facts that this process has sent to it


def send(**facts: Any) -> None:
    """Send facts to the supervisor, as values of JSON.

    Args:
        facts: `warehouse`, the one that the command works on; `attempt`, the start of a run and the
            warehouse's expected id; `timeout` in seconds, or None; `answered`, once an object of
            --json is printed; `printed`, once the result is, so nothing can fail the command any
            more; `ends`, when the command ends by itself; `run_id` and `step`, see `log_lines`.
    """
    SENT.update(facts)
    for pipe in _PIPES:
        with suppress(OSError):
            os.write(pipe, json.dumps(facts).encode() + b"\n")


def ending_signals() -> set[signal.Signals]:
    """Return the signals that end a command, without those that are ignored, as under nohup."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return {number for number in ending if signal.getsignal(number) != signal.SIG_IGN}


def print_message(message: str, level: int = logging.ERROR) -> None:
    """Print a message of the command on stderr."""
    with suppress(OSError, ResourceError):  # its terminal may be closed
        echo_line(printable_lines(message), level)


def supervised(work: Callable[[], int], *, note: str = "", answer: Answer | None = None) -> int:
    """Do some work in another process, print why it failed, and return its exit status.

    Args:
        work: the work, which returns an exit status.
        note: the end of the message after a signal.
        answer: prints the object of --json, if the work has not done so.
    """
    ending, began = ending_signals(), time.monotonic()
    signals = _noted(ending)
    (alive, own), (received, sending) = os.pipe(), os.pipe()
    folder = Path(tempfile.mkdtemp(prefix="kp-"))
    _warn_of_other_folder(folder)
    try:
        pid = os.fork()
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not pid:
        os.close(own)
        _PIPES.append(sending)
        _become_child(folder, alive, ending)
        _exit_child(_status(work))
    os.close(alive)
    child = _Child(pid, received, began)
    number = child.wait(signals)
    status = _report(child, number, folder, note, answer)
    _clear(folder)
    return status


def _noted(ending: Collection[int]) -> int:
    """Write these signals, and a child's end, to a pipe, instead of their usual action."""
    noted, notes = os.pipe()
    os.set_blocking(notes, False)
    signal.set_wakeup_fd(notes)
    for number in (*ending, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)
    return noted


class _Child:
    """The process that does the work, as its supervisor knows it.

    Attributes:
        status: how it ended: its exit status, or the negative number of the signal that ended it.
        sent: see `send`.
    """

    def __init__(self, pid: int, pipe: int, began: float) -> None:
        self.pid, self.status, self.sent = pid, 0, dict[str, Any]()
        self._pipe, self._began, self._rest = pipe, began, b""
        self._started_at = now()
        os.set_blocking(pipe, False)

    @property
    def warehouse(self) -> Path | None:
        """The warehouse that it works on."""
        return Path(self.sent["warehouse"]) if "warehouse" in self.sent else None

    @property
    def result(self) -> RunResult:
        """The state of its command, as far as it is known here."""
        place = shown(self.warehouse) if self.warehouse else None
        return RunResult.here("running", started_at=self._started_at, warehouse=place)

    @property
    def exit_status(self) -> int:
        """The exit status of its command, if it crashed."""
        return 128 - self.status if self.status < 0 else self.status or 1

    @property
    def _left_s(self) -> float:
        timeout = self.sent.get("timeout")
        left = inf if timeout is None else self._began + timeout - time.monotonic()
        return min(max(left, 0), _MAX_WAIT_S)

    def wait(self, signals: int) -> int | None:
        """Wait for its end, a signal or its timeout, and kill it and all its descendants.

        Returns:
            The signal that ended it; 0 for its timeout; None if it ended before.
        """
        number = None
        while number is None and not self._has_ended():
            ready, _, _ = select.select([signals, self._pipe], _NOTHING, _NOTHING, self._left_s)
            self._read()
            if signals in ready:
                [number] = {*os.read(signals, 1)} - {signal.SIGCHLD} or [None]
            elif not self._left_s:
                number = 0
        if number is not None:
            os.kill(self.pid, signal.SIGKILL)  # it may lead no group yet
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._read()
        return number

    def _has_ended(self) -> bool:
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        self.status = os.waitstatus_to_exitcode(status)
        return bool(ended)

    def _read(self) -> None:
        """Read the facts that it has sent."""
        with suppress(BlockingIOError):
            while read := os.read(self._pipe, 1 << 16):
                *lines, self._rest = (self._rest + read).split(b"\n")
                for line in lines:
                    self.sent.update(json.loads(line))


def _warn_of_other_folder(folder: Path) -> None:
    """Warn if temporary files do not go to TMPDIR: the other disk may be too small."""
    wanted = os.environ.get("TMPDIR")
    if wanted and os.path.abspath(wanted) != str(folder.parent):  # noqa: PTH100 (as tempfile does)
        message = f"TMPDIR ({wanted}) is not writable, so {folder.parent} is used"
        print_message(message, logging.WARNING)


def _become_child(folder: Path, alive: int, ending: Collection[int]) -> None:
    """Set up the child's session, signals, folder and streams; `alive` ends with the parent."""
    os.setsid()
    for number in (*ending, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    # The current folder may hold a flows/ or a prefect.py of the user's own.
    os.environ.update(TMPDIR=str(folder), PYTHONSAFEPATH="1")
    tempfile.tempdir = None
    note_leftovers_in(folder / _LEFTOVERS)
    TEMPORARY_FOLDERS.append(folder)
    if columns := shutil.get_terminal_size((0, 0)).columns:
        os.environ["COLUMNS"] = str(columns)  # the child's own stdout is no terminal
    set_user_streams(_duplicate(sys.stdout), _duplicate(sys.stderr))
    _redirect_output(folder / _OUTPUT)
    threading.Thread(target=_end_with_parent, args=[folder, alive], daemon=True).start()


def _end_with_parent(folder: Path, alive: int) -> None:
    os.read(alive, 1)
    _clear(folder)
    os.killpg(0, signal.SIGKILL)


def _status(work: Callable[[], int]) -> int:
    """Do the work, print any error, and return the exit status."""
    try:
        return work()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException as error:  # noqa: BLE001 (Rust's panics and interrupts, too)
        print_message(str(explain_error(error)))
        return 1


def _exit_child(status: int) -> NoReturn:
    """End the child without the interpreter's shutdown, which takes a tenth of a second."""
    send(ends=True)
    if "prefect" in sys.modules:  # it sends its last logs when the interpreter ends
        sys.exit(status)
    for stream in filter(None, (user_out(), user_err(), sys.stdout, sys.stderr)):
        with suppress(OSError):  # its disk may be full
            stream.flush()
    os._exit(status)


def end_after(timeout: timedelta | None) -> None:
    """End this command so long after its start, in any case; None for never."""
    send(timeout=timeout and timeout.total_seconds())


def _report(
    child: _Child, number: int | None, folder: Path, note: str, answer: Answer | None
) -> int:
    """Print how the child ended, unless it did so itself, and return the exit status."""
    if number is None and child.status >= 0 and "ends" in child.sent:
        return child.status
    ended, status = _end(child, number, folder)
    follow()
    note_place(run_id=child.sent.get("run_id"), step=child.sent.get("step"))
    if "printed" in child.sent:
        print_message(f"{ended.reason}; the report may be an older one", logging.WARNING)
        return 0
    if child.warehouse and "attempt" in child.sent:
        from kp_batch.warehouse.last_run import Attempt, record_end

        kept = ended  # without what a library printed last, which may quote a trace
        if ended.code == "crash" and ended.reason:
            kept = replace(ended, reason=ended.reason.partition(": ")[0])
        began, warehouse_id = child.sent["attempt"]
        this = Attempt(child.warehouse, RunResult.here("running", started_at=began), warehouse_id)
        record_end(this, child.pid, kept)
    if answer and "answered" not in child.sent:
        answer(ended)
    print_message(f"{ended.reason}{note if number else ''}")
    return status


def _end(child: _Child, number: int | None, folder: Path) -> tuple[RunResult, int]:
    """Return how the child ended, and the exit status."""
    if number is None:
        status, (reason, code) = child.exit_status, _crash(child.status, folder)
        return child.result.ended("failed", reason, code), status
    if number:
        reason = f"ended by {_signal_name(number)}{_where(child)}"
        return child.result.ended("stopped", reason, "signal"), 128 + number
    timeout = format_duration(timedelta(seconds=child.sent["timeout"]))
    reason = f"the run took longer than --timeout {timeout}, and was stopped{_where(child)}"
    return child.result.ended("failed", reason, "timeout"), 1


def _where(child: _Child) -> str:
    """Return the step that the child was in."""
    if child.warehouse is None:
        return ""
    from kp_batch.warehouse.last_run import run_of_process

    shown = run_of_process(child.warehouse, child.pid)
    return f" in the step {shown.step}" if shown and shown.step else ""


def _crash(status: int, folder: Path) -> tuple[str, str]:
    """Return why the child ended before its work, and the code of the reason."""
    path, details, output = folder / _OUTPUT, "", b""
    with suppress(OSError):
        output = path.read_bytes()
        if path.is_symlink() and path.readlink().suffix != HALF_WRITTEN:
            details = f"; details are in {path.readlink()}"
    if status == -signal.SIGKILL:
        reason = (
            "the worker process was killed by SIGKILL, probably because memory ran out; "
            f"what is published is intact{details}"
        )
        return reason, "killed"
    last = output.decode("utf-8", "replace").strip().rpartition("\n")[2]
    how = _signal_name(-status) if status < 0 else f"itself, with status {status}"
    return f"the worker process ended by {how}: {last or 'it printed nothing'}{details}", "crash"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def _clear(folder: Path) -> None:
    remove_leftovers(folder / _LEFTOVERS)
    shutil.rmtree(folder, ignore_errors=True)


def _duplicate(stream: TextIO | None) -> TextIO | None:
    """A copy of a stream, on a descriptor of its own."""
    if stream is None:  # it was closed when the command began
        return None
    return TextIOWrapper(
        os.fdopen(os.dup(stream.fileno()), "wb"),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=bool(stream.line_buffering),
    )


def _redirect_output(path: Path) -> None:
    """Send the output of libraries to a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


@contextmanager
def logged(log: Path) -> Generator[None]:
    """Send the output of libraries to the log of a warehouse, which errors then name.

    The new log replaces the old one only when this command is the only writer, since an earlier
    command may still be running. Only a supervised command has a log.

    Raises:
        KpBatchError: the command failed.
        OSError: the log cannot be written.
    """
    if not TEMPORARY_FOLDERS:
        yield
        return
    from kp_batch.warehouse.publication import when_writing

    new = _OutputLog(log, TEMPORARY_FOLDERS[0] / _OUTPUT)
    when_writing(new.publish)
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # Rust's panics are no Exception
        raise new.explain(error) from error
    finally:
        new.remove_unpublished()


class _OutputLog:
    """A log under a temporary name, to which `output` becomes a link."""

    def __init__(self, path: Path, output: Path) -> None:
        self._path, self._output, self._partial = path, output, temporary_sibling(path)
        self._partial.touch(0o600, exist_ok=False)  # libraries may print texts of traces
        with suppress(OSError):  # its disk may be full
            self._partial.write_bytes(output.read_bytes())
        self._link_to(self._partial)
        _redirect_output(self._partial)

    def publish(self) -> None:
        """Replace the log of the command before; only the one writer may."""
        if self._partial.exists():  # else it has replaced it already
            self._partial.replace(self._path)
            self._link_to(self._path)

    def explain(self, error: BaseException) -> KpBatchError:
        """Explain an error to the user; one that is not meant for users goes into the log, too."""
        if isinstance(error, KpBatchError):
            return explain_error(error, str(self._path))
        with suppress(OSError):  # the log's disk may be full
            traceback.print_exception(error, file=sys.__stderr__)
        return explain_error(error, str(self._path) if self._try_publish() else None)

    def remove_unpublished(self) -> None:
        """Remove the log if it did not replace the one before."""
        self._partial.unlink(missing_ok=True)

    def _try_publish(self) -> bool:
        """Publish the log unless another command writes; whether it is published now."""
        from kp_batch.warehouse.lock import locked

        try:
            with locked(self._path.parent, wait=False):
                self.publish()
        except (BusyError, OSError):
            return False
        return True

    def _link_to(self, log: Path) -> None:
        with suppress(OSError):  # the disk of temporary files may be full
            self._output.unlink()
            self._output.symlink_to(log.absolute())
