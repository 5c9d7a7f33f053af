"""Carries a long command out in a process of its own, waits for it, and clears up after it.

Python hears no signal while a library works, the system kills who takes too much memory, and a run
under Prefect may start a server. So the child does all the work, as if it had been started alone,
in a session of its own to which all that it starts belongs, and with its own temporary folder. The
parent waits; it ends the child's process group as soon as a signal comes, which is safe at any
moment, since only the swap of manifest.json publishes anything. Should the parent die, the child
sees the end of a pipe, and does the same.

What the child itself tells goes to the user's streams: see `log`. What libraries print, and
Prefect's server, goes into a file of the temporary folder, or into the log of the warehouse.
Descendants that lead process groups of their own, as Ray's do, end by themselves, once they miss
who began them.
"""

import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO

from kp_batch.errors import OWN, BusyError, KpBatchError, ResourceError, explained
from kp_batch.files import HALF_WRITTEN, note_leftovers_in, remove_leftovers, temporary_sibling
from kp_batch.log import echo, keep_apart, user_err, user_out
from kp_batch.text import printable_lines

# Files of the child's temporary folder: what it would leave elsewhere where it is killed, what
# libraries printed, or a link to that, whether it has told its result, and whether it is at work:
# a library may end it, too. Only a file that is there already can be removed on a full disk.
_LEFT, _PRINTED, _TOLD, _AT_WORK = "left", "printed", "told", "at-work"


def ending_signals() -> set[signal.Signals]:
    """The signals that end a command: not those that who began it has it ignore, as nohup does."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return {each for each in ending if signal.getsignal(each) != signal.SIG_IGN}


def print_message(message: str) -> None:
    """Tell something on stderr."""
    with suppress(OSError, ResourceError):  # its terminal may be closed
        echo(f"kp-batch: {printable_lines(message)}", err=True)


def supervised(work: Callable[[], int], *, whole: str = "") -> int:
    """Do some work in another process, and give its exit status.

    Args:
        work: gives its exit status, and has told by then why it failed.
        whole: what is added to what is told of a signal.
    """
    ending = ending_signals()
    # They are waited for, and so interrupt nothing that follows.
    signal.signal(signal.SIGCHLD, _heed)  # some systems drop what nobody heeds
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *ending})
    _open_closed_streams()
    (alive, own), folder = os.pipe(), Path(tempfile.mkdtemp(prefix="kp-"))
    try:
        (folder / _AT_WORK).touch()
        child = os.fork()
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not child:
        os.close(own)
        _begin(folder, alive, ending)
        _end(_status(work))
    os.close(alive)
    number, status = _ended(child, ending)
    if number is None and (status < 0 or (folder / _AT_WORK).exists()):
        status = _told(folder, status)
    _clear(folder)
    if number is not None:
        print_message(f"ended by {_named(number)}{whole}")
        return 128 + number
    return status


def _open_closed_streams() -> None:
    """Open stdin, stdout and stderr where they are closed: no other file takes their numbers."""
    number = 0
    while number <= 2:
        number = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(number, number <= 2)
    os.close(number)


def _heed(_number: int, _frame: FrameType | None) -> None:
    pass


def _begin(folder: Path, alive: int, ending: Collection[int]) -> None:
    """Become the child; `alive` ends with the parent."""
    os.setsid()
    for number in (*ending, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, *ending})
    # The folder that the user stands in may hold a flows/ or a prefect.py of their own.
    os.environ.update(TMPDIR=str(folder), PYTHONSAFEPATH="1")
    tempfile.tempdir = None
    note_leftovers_in(folder / _LEFT)
    OWN.append(folder)
    if columns := shutil.get_terminal_size((0, 0)).columns:
        os.environ["COLUMNS"] = str(columns)  # who asks its own stdout learns of no terminal
    keep_apart(_moved(sys.stdout), _moved(sys.stderr))
    _lead_output_into(folder / _PRINTED)
    threading.Thread(target=_end_with_parent, args=[folder, alive], daemon=True).start()


def _end_with_parent(folder: Path, alive: int) -> None:
    os.read(alive, 1)
    _clear(folder)
    os.killpg(0, signal.SIGKILL)


def _status(work: Callable[[], int]) -> int:
    """Do the work; what it fails over unforeseen is told, too."""
    try:
        return work()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException as error:  # noqa: BLE001 (Rust's panics and interrupts, too)
        print_message(str(explained(error)))
        return 1


def _end(status: int) -> NoReturn:
    """End the child; to take the interpreter down would need a tenth of a second."""
    for folder in OWN:
        with suppress(OSError):
            (folder / _AT_WORK).unlink()
    if "prefect" in sys.modules:  # it sends its last logs when the interpreter ends
        sys.exit(status)
    for each in filter(None, (user_out(), user_err(), sys.stdout, sys.stderr)):
        with suppress(OSError):  # its disk may be full
            each.flush()
    os._exit(status)


def _ended(child: int, ending: Collection[int]) -> tuple[int | None, int]:
    """Wait for the child or for a signal, and end all that the child has started.

    Returns:
        The signal, if one came, and how the child ended: its exit status, or the negative number
        of the signal that ended it.
    """
    number, ended, status = 0, 0, 0
    while not ended:
        number = signal.sigwait({signal.SIGCHLD, *ending})
        if number in ending:
            os.kill(child, signal.SIGKILL)  # it may lead no group yet
        ended, status = os.waitpid(child, 0 if number in ending else os.WNOHANG)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    return number if number in ending else None, os.waitstatus_to_exitcode(status)


def _told(folder: Path, status: int) -> int:
    """Tell how the child ended that should not have, see `_ended`; gives the exit status."""
    printed, details, said = folder / _PRINTED, "", b""
    with suppress(OSError):
        said = printed.read_bytes()
        if printed.is_symlink() and printed.readlink().suffix != HALF_WRITTEN:
            details = f"; details are in {printed.readlink()}"
    if status == -signal.SIGKILL:
        end = (
            "the working process was killed by SIGKILL, as the system does where memory runs out; "
            f"what is published is whole{details}"
        )
    else:
        last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        how = _named(-status) if status < 0 else f"itself, with status {status}"
        end = f"the working process ended by {how}: {last or 'it said nothing'}{details}"
    if (folder / _TOLD).exists():
        print_message(f"warning: {end}; the report may be an older one")
        return 0
    print_message(end)
    return 128 - status if status < 0 else status or 1


def _named(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def _clear(folder: Path) -> None:
    remove_leftovers(folder / _LEFT)
    shutil.rmtree(folder, ignore_errors=True)


def has_told() -> None:
    """Note that the command has told its result: what it does after that is no reason to fail."""
    for folder in OWN:
        with suppress(OSError):
            (folder / _TOLD).touch()


def _moved(stream: TextIO | None) -> TextIO | None:
    """Another stream to where one leads, as it is otherwise."""
    if stream is None:  # who began the command has closed it
        return None
    return TextIOWrapper(
        os.fdopen(os.dup(stream.fileno()), "wb"),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=bool(stream.line_buffering),
    )


def _lead_output_into(path: Path) -> None:
    """Lead what libraries print into a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


@contextmanager
def logged(log: Path) -> Generator[None]:
    """Have the log of a warehouse take what libraries print, and tell errors with its name.

    It is begun beside the log of the command before, which may still be at work, and takes its
    place once this command alone writes. Only a supervised command has one.

    Raises:
        KpBatchError: what the command fails over.
        OSError: it cannot be written.
    """
    if not OWN:
        yield
        return
    from kp_batch.warehouse.publication import when_writing

    begun = _Log(log, OWN[0] / _PRINTED)
    when_writing(begun.take_place)
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # Rust's panics are no Exception
        raise begun.explained(error) from error
    finally:
        begun.end()


class _Log:
    """A log that is begun: `printed`, where libraries print, leads into it.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, printed: Path) -> None:
        self._path, self._printed, self._begun = path, printed, temporary_sibling(path)
        self._begun.touch(0o600, exist_ok=False)  # libraries may print what traces say
        with suppress(OSError):  # its disk may be full
            self._begun.write_bytes(printed.read_bytes())
        self._link_to(self._begun)
        _lead_output_into(self._begun)

    def take_place(self) -> None:
        """Replace the log of the command before; only who alone writes may.

        Raises:
            OSError: it cannot be replaced.
        """
        if self._begun.exists():  # else it has
            self._begun.replace(self._path)
            self._link_to(self._path)

    def explained(self, error: BaseException) -> KpBatchError:
        """Explain an error to the user; one that is not meant for users goes into the log, too."""
        if isinstance(error, KpBatchError):
            return explained(error, str(self._path))
        with suppress(OSError):  # the log's disk may be full
            traceback.print_exception(error, file=sys.__stderr__)
        return explained(error, str(self._path) if self._has_settled() else None)

    def end(self) -> None:
        """Remove what took no place."""
        self._begun.unlink(missing_ok=True)

    def _has_settled(self) -> bool:
        """Take the place unless another command writes; whether it has it now."""
        from kp_batch.warehouse.lock import locked

        try:
            with locked(self._path.parent, wait=False):
                self.take_place()
        except (BusyError, OSError):
            return False
        return True

    def _link_to(self, log: Path) -> None:
        with suppress(OSError):  # the disk of temporary files may be full
            self._printed.unlink()
            self._printed.symlink_to(log.absolute())
