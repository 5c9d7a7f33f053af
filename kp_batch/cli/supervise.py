"""Runs a long command in a process of its own, ends it on signals, and clears up after it.

Python handles no signal while a library works, the system kills a process that takes too much
memory, and a run under Prefect may start a server. So a child does all the work, as if it had been
started alone, in its own session, with its own temporary folder. The parent waits; on a signal it
kills the child's process group. That is safe at any moment, since only the swap of manifest.json
publishes anything. If the parent dies, the child reads the end of a pipe, and does the same.

The child's own output goes to the user's streams: see `log`. The output of libraries, and of
Prefect's server, goes into a file of the temporary folder, or into the log of the warehouse.
Descendants with process groups of their own, as Ray's, end by themselves when their parent is gone.
"""

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from io import TextIOWrapper
from math import inf
from pathlib import Path
from typing import NoReturn, TextIO

from kp_batch.address_space import maybe_why
from kp_batch.cli.owed import OWED, PRINTED, print_owed
from kp_batch.ended import Ended
from kp_batch.errors import (
    TEMPORARY_FOLDERS,
    BusyError,
    KpBatchError,
    ResourceError,
    RunTimeoutError,
    explain_error,
)
from kp_batch.files import HALF_WRITTEN, note_leftovers_in, remove_leftovers, temporary_sibling
from kp_batch.log import echo, set_user_streams, user_err, user_out
from kp_batch.text import format_duration, parse_duration, printable_lines

# Files of the child's temporary folder, besides those of `owed`: the list of what it would leave
# elsewhere if it is killed; the output of libraries, or a link to it; a mark that it is at work,
# since a library may end it, too; and its timeout.
_LEFTOVERS, _OUTPUT, _AT_WORK, _TIMEOUT = "left", "printed", "at-work", "timeout"
_LATE = 0  # in place of a signal
_GRACE_S = 30.0  # in which the child, if it can, ends itself at its timeout, and says so
_LONGEST_S = 1e6  # to wait at once


def ending_signals() -> set[signal.Signals]:
    """The signals that end a command, without those that are ignored, as under nohup."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return {number for number in ending if signal.getsignal(number) != signal.SIG_IGN}


def print_message(message: str) -> None:
    """Print a message of the command on stderr."""
    with suppress(OSError, ResourceError):  # its terminal may be closed
        echo(f"kp-batch: {printable_lines(message)}", err=True)


def supervised(work: Callable[[], int], *, note: str = "", owed: str | None = None) -> int:
    """Do some work in another process, and return its exit status; it prints why it failed.

    The message after a signal ends with the note. The work owes an object: see `owed`.
    """
    ending = ending_signals()
    # Blocked signals are waited for, and interrupt nothing that follows.
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # some systems drop it unhandled
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *ending})
    _open_closed_streams()
    began = time.monotonic()
    (alive, own), folder = os.pipe(), Path(tempfile.mkdtemp(prefix="kp-"))
    _tell_of_another_place(folder)
    try:
        (folder / _AT_WORK).touch()
        if owed:
            (folder / OWED).write_text(owed, "utf-8")
        child = os.fork()
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not child:
        os.close(own)
        _become_child(folder, alive, ending)
        _exit_child(_status(work))
    os.close(alive)
    number, status = _wait(child, ending, partial(_deadline, folder, began))
    if number == _LATE:
        status = _report_late(folder, child, note)
    elif number is not None:
        status = _report_signal(folder, child, number, note)
    elif status < 0 or (folder / _AT_WORK).exists():
        status = _report_crash(folder, child, status)
    _clear(folder)
    return status


def _open_closed_streams() -> None:
    """Open stdin, stdout and stderr where they are closed: no other file takes their numbers."""
    number = 0
    while number <= 2:
        number = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(number, number <= 2)
    os.close(number)


def _tell_of_another_place(folder: Path) -> None:
    """Say where temporary files go, if not where TMPDIR has them: that disk may be too small."""
    wanted = os.environ.get("TMPDIR")
    if wanted and os.path.abspath(wanted) != str(folder.parent):  # noqa: PTH100 (as tempfile does)
        print_message(f"warning: TMPDIR is {wanted}, which takes no file: {folder.parent} is used")


def _become_child(folder: Path, alive: int, ending: Collection[int]) -> None:
    """Set up the child's session, signals, folder and streams; `alive` ends with the parent."""
    os.setsid()
    for number in (*ending, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, *ending})
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
    """Do the work, and print an unforeseen error, too; returns the exit status."""
    try:
        return work()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException as error:  # noqa: BLE001 (Rust's panics and interrupts, too)
        print_message(str(explain_error(error)))
        return 1


def _exit_child(status: int) -> NoReturn:
    """End the child without the interpreter's shutdown, which takes a tenth of a second."""
    for folder in TEMPORARY_FOLDERS:
        with suppress(OSError):
            (folder / _AT_WORK).unlink()
    if "prefect" in sys.modules:  # it sends its last logs when the interpreter ends
        sys.exit(status)
    for stream in filter(None, (user_out(), user_err(), sys.stdout, sys.stderr)):
        with suppress(OSError):  # its disk may be full
            stream.flush()
    os._exit(status)


def end_after(timeout: timedelta | None) -> None:
    """Have this command ended so long after its start, whatever it does then; None: never.

    A run ends itself, see `steps.timeout`, where it can: it has a moment more for that.
    """
    for folder in TEMPORARY_FOLDERS:
        (folder / _TIMEOUT).write_text(format_duration(timeout), "utf-8")
        os.kill(os.getppid(), signal.SIGCHLD)  # the supervisor looks for it


def _deadline(folder: Path, began: float) -> float:
    """When the command is to be ended, by the monotonic clock, as is when it began."""
    timeout = _timeout(folder)
    return began + timeout.total_seconds() + _GRACE_S if timeout else inf


def _timeout(folder: Path) -> timedelta | None:
    try:
        return parse_duration((folder / _TIMEOUT).read_text("utf-8"))
    except (OSError, ValueError):  # it is not known yet
        return None


def _wait(
    child: int, ending: Collection[int], deadline: Callable[[], float]
) -> tuple[int | None, int]:
    """Wait for the child or for a signal, and kill all processes that the child has started.

    Returns:
        The signal, if one came, or `_LATE` at the deadline; and how the child ended: its exit
        status, or the negative number of the signal that ended it.
    """
    number, ended, status = 0, 0, 0
    while not ended:
        left = min(max(deadline() - time.monotonic(), 0), _LONGEST_S)
        info = signal.sigtimedwait({signal.SIGCHLD, *ending}, left)
        number = info.si_signo if info else _LATE
        if info is None and deadline() > time.monotonic():
            continue
        if number != signal.SIGCHLD:
            os.kill(child, signal.SIGKILL)  # it may lead no group yet
        ended, status = os.waitpid(child, os.WNOHANG if number == signal.SIGCHLD else 0)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    return None if number == signal.SIGCHLD else number, os.waitstatus_to_exitcode(status)


def _report_signal(folder: Path, child: int, number: int, note: str) -> int:
    """Print that a signal has ended the child, and at which step; returns the exit status."""
    from kp_batch.warehouse.last_run import step_of

    step = step_of(folder)
    end = f"ended by {_signal_name(number)}{f' in the step {step}' if step else ''}"
    _leave_end(folder, child, Ended("stopped", end, "signal"))
    print_message(f"{end}{note}")
    return 128 + number


def _report_late(folder: Path, child: int, note: str) -> int:
    """Print that the child was not over in time, and could not end itself; returns the status."""
    from kp_batch.steps.timeout import not_over
    from kp_batch.warehouse.last_run import step_of

    end = not_over(_timeout(folder) or timedelta(), step_of(folder))
    if (folder / PRINTED).exists():
        print_message(f"warning: {end}; the report may be an older one")
        return 0
    _leave_end(folder, child, Ended("failed", end, RunTimeoutError.code))
    print_message(f"{end}{note}")
    return 1


def _report_crash(folder: Path, child: int, status: int) -> int:
    """Print how the child ended before its work did, see `_wait`; returns the exit status."""
    path, details, output = folder / _OUTPUT, "", b""
    with suppress(OSError):
        output = path.read_bytes()
        if path.is_symlink() and path.readlink().suffix != HALF_WRITTEN:
            details = f"; details are in {path.readlink()}"
    if status == -signal.SIGKILL:
        code = "killed"
        end = (
            "the working process was killed by SIGKILL, as the system does where memory runs out; "
            f"what is published is whole{details}"
        )
    else:
        last = output.decode("utf-8", "replace").strip().rpartition("\n")[2]
        how = _signal_name(-status) if status < 0 else f"itself, with status {status}"
        why = maybe_why()
        code = "memory" if why else "crash"
        end = f"the working process ended by {how}: {last or 'it said nothing'}{why}{details}"
    if (folder / PRINTED).exists():
        print_message(f"warning: {end}; the report may be an older one")
        return 0
    _leave_end(folder, child, Ended("failed", end, code))
    print_message(end)
    return 128 - status if status < 0 else status or 1


def _leave_end(folder: Path, child: int, ended: Ended) -> None:
    """Leave how the child ended, which could not: for the warehouse, and for who waits for it."""
    from kp_batch.warehouse.last_run import end_for

    end_for(folder, child, ended)
    with suppress(OSError):
        print_owed((folder / OWED).read_text("utf-8"), ended)


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

    The new log replaces that of the command before, which may still be at work, only once this
    command alone writes. Only a supervised command has a log.

    Raises:
        KpBatchError: the command failed.
        OSError: the log cannot be written.
    """
    if not TEMPORARY_FOLDERS:
        yield
        return
    from kp_batch.warehouse.publication import when_writing

    new = _Log(log, TEMPORARY_FOLDERS[0] / _OUTPUT)
    when_writing(new.publish)
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # Rust's panics are no Exception
        raise new.explain(error) from error
    finally:
        new.remove_unpublished()


class _Log:
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
