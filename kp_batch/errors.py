"""Errors for users, failures that may pass, and one line for every other exception.

Every message says what happened, to what, and what to do next.
"""

import errno
import os
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kp_batch.text import one_line, size_of

# Failures of disk and network that may pass; only these are retried.
_PASSING = (
    errno.EIO,
    errno.ESTALE,
    errno.EAGAIN,
    errno.EBUSY,
    errno.ETIMEDOUT,
    errno.ECONNRESET,
    errno.ECONNREFUSED,
    errno.ECONNABORTED,
    errno.EPIPE,
    errno.ENOTCONN,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENETRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
)
# The machine lacks disk, memory or open files; the file being read is not at fault.
_SHORT = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_DISK_FULL = re.compile(
    "No space left on device|os error 28|disk is full"
    r"|Not enough free space to write|\d+ requested and \d+ written"  # NumPy's
    "|max_temp_directory_size"  # DuckDB's, which calls it a lack of memory: it takes 90% of a disk
)
# DuckDB's and Polars' words for a missing file of a table.
_FILE_GONE = ("IO Error: No files found", "IO Error: Cannot open file", "(os error 2)")
_REMEDIES = {  # for messages of Prefect, Python and Polars: a code, and what to do
    "Failed to reach API": ("prefect", "start that Prefect server, or run with --no-prefect"),
    "can't start new thread": (
        "threads",
        "raise the limit on threads (pids.max of a container, ulimit -u)",
    ),
    "No module named": ("package", "install that package in this environment: pip install {name}"),
    "Worker threads cannot be set to 0": (
        "threads",
        "set POLARS_MAX_THREADS to 1 or more, or not at all",
    ),
}
_NO_MEMORY = "Out of Memory Error"  # DuckDB's
_ENOUGH = 1 << 20  # free bytes of a disk that is not full
_NOISE = re.compile(r"\x1b\[[0-9;]*m|^\[Errno \d+\] ")  # delta-rs's colours, Python's numbers

# Folders to check for a full disk: those in which this process has begun files, and its own
# temporary one, if any.
WRITTEN_FOLDERS: set[Path] = set()
TEMPORARY_FOLDERS: list[Path] = []

# Why a file cannot be read.
UNREADABLE_FILE = "unreadable_file"
CUT_FILE = "cut_file"  # its end cannot be
MISSING_COLUMN = "missing_column"
WRONG_COLUMN_TYPE = "wrong_column_type"

# Why a scored trace cannot be read again from its archive.
Unread = Literal["gone", "changed", "large", "unreadable"]
UNREAD: Mapping[Unread, str] = {
    "gone": "its file is gone from the archive",
    "changed": "its file has changed in the archive",
    "large": "its file is too large to be read again for this",
    "unreadable": "its file cannot be read",
}


# How a run ends that is not done.
Ending = Literal["refused", "failed", "could_not_begin", "stopped"]


class KpBatchError(Exception):
    """An error that the user can fix. The command line prints it as one line, and exits with 1.

    Attributes:
        code: a stable word for its kind.
        stored: the message as a warehouse keeps it, without ids and texts of traces.

    Examples:
        >>> try:
        ...     wh.run(cache_size=0)
        ... except kp.KpBatchError as error:
        ...     print(error.code, error)
        settings cache_size must be at least 1, got 0
    """

    code: str = "other"
    ending: Ending | None = None  # of a run that it fails; None: by whether the run had begun
    leaves_mark: bool = True  # whether the warehouse records the failed run; see `last_run`

    def __init__(self, message: str, *, code: str | None = None, stored: str | None = None) -> None:
        super().__init__(message)
        self.stored = stored or message
        if code:
            self.code = code


class AuditError(KpBatchError):
    """An audit that must not have rows has some; `results` holds the result of every audit."""

    code = "audit"
    ending = "refused"

    def __init__(self, message: str, results: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.results = results


class ArchiveError(KpBatchError):
    """The archive cannot be scored: it is empty, or too much of it is rejected."""

    code = "archive"


class LimitError(ArchiveError):
    """A run would reject, miss or remove too much; the code names the limit."""

    ending = "refused"


class NoTextsError(ArchiveError):
    """A new encoder needs texts whose files cannot be read."""

    code = "no_texts"
    ending = "refused"


class EncoderError(KpBatchError):
    """The encoder cannot be loaded, or its vectors cannot be used."""

    code = "encoder"


class SettingError(KpBatchError):
    """A setting is not possible; the message lists all such settings."""

    code = "settings"
    ending = "refused"


class ProfileError(SettingError):
    """A profiles file has faults; the message lists all of them."""

    code = "weights"


class ResourceError(KpBatchError):
    """The machine has too little memory or too little disk for a run."""

    code = "memory"
    ending = "failed"


class StorageError(KpBatchError):
    """The disk or the network failed at every attempt."""

    code = "storage"
    ending = "failed"


class TraceError(KpBatchError):
    """One trace cannot be scored; `reasons` holds the codes of all its faults."""

    code = "trace"

    def __init__(self, message: str, reasons: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.reasons = reasons


class WarehouseError(KpBatchError):
    """The warehouse is missing, damaged, or cannot be written."""

    code = "warehouse"


class IdentityError(WarehouseError):
    """The warehouse of a project is missing, or another one is in its place and stays as it is."""

    code = "identity"
    leaves_mark = False


class DamagedVectorsError(WarehouseError):
    """A stored vector is damaged; it can be computed again."""

    code = "vectors"


class WorkerError(KpBatchError):
    """Ray is missing, or its cluster cannot do the work."""

    code = "ray"


class BusyError(WarehouseError):
    """Another process is writing to the warehouse, and records its own run there."""

    code = "busy"
    leaves_mark = False


class OvertakenError(BusyError):
    """Another process has written to the warehouse during this one's work."""

    code = "overtaken"
    leaves_mark = True


class CrashError(KpBatchError):
    """A bug in kp_batch or in a library, in one line."""

    code = "crash"
    ending = "failed"


@dataclass(frozen=True)
class Fault:
    """A fault of a file rather than of a row: its reason code, and a sentence for people."""

    code: str
    message: str


class UnreadableError(Exception):
    """A file cannot be read at all; given only a text, the code is that of an unreadable file."""

    def __init__(self, *faults: Fault | str) -> None:
        self.faults = [
            fault if isinstance(fault, Fault) else Fault(UNREADABLE_FILE, fault) for fault in faults
        ]
        super().__init__("; ".join(fault.message for fault in self.faults))


def is_passing(error: BaseException) -> bool:
    """Whether a failure of disk or network may pass; False for errors of logic.

    Libraries in other languages have the system's error only in their message. An error that was
    raised from a passing one is passing.
    """
    if isinstance(error, KpBatchError):
        return False
    if isinstance(error, ConnectionError | TimeoutError) or _has_errno(error, _PASSING):
        return True
    return error.__cause__ is not None and is_passing(error.__cause__)


def is_of_machine(error: BaseException) -> bool:
    """Whether this machine is short of disk, memory or open files, so that no file is at fault."""
    return isinstance(error, MemoryError) or _has_errno(error, _SHORT)


def _has_errno(error: BaseException, numbers: Collection[int]) -> bool:
    if getattr(error, "errno", 0) in numbers:
        return True
    return any(os.strerror(number) in str(error) for number in numbers)


def explain_error(error: BaseException, log: str | None = None) -> KpBatchError:
    """Explain why a command failed: what the user can fix, or else a bug.

    Args:
        error: the exception of the command.
        log: the file with details, in the warehouse; None for a command that publishes nothing.
    """
    if fixable := explain_fixable(error, log):
        return fixable
    details = f"; details are in {log}" if log else ""
    is_memory = isinstance(error, MemoryError) or _NO_MEMORY in str(error)
    name = f"unexpected {type(error).__name__}"
    return CrashError(
        f"{name}: {_text(error)}{details}",
        code="memory" if is_memory else None,
        stored=f"{name}; its message is only printed, because it may quote a trace",
    )


def explain_fixable(error: BaseException, log: str | None = None) -> KpBatchError | None:
    """Explain an error that the user can fix; None for any other. See `explain_error`."""
    if isinstance(error, KpBatchError):
        # DuckDB reports a full temporary folder as a warehouse that cannot be read.
        is_full = isinstance(error, WarehouseError) and _is_disk_full(error.__cause__)
        return _full_disk(error, log) if is_full else error
    if _is_disk_full(error):
        return _full_disk(error, log)
    text = _text(error)
    for sign, (code, remedy) in _REMEDIES.items():
        if sign in text:
            package = str(getattr(error, "name", None) or "NAME").partition(".")[0]
            advice = remedy.format(name=package)
            return KpBatchError(f"{text}; {advice}", code=code)
    is_denied = "Permission denied" in text
    if not is_denied and any(sign in text for sign in _FILE_GONE):
        remedy = "try again if another command removed it, or else restore it from a copy"
        return WarehouseError(f"a file is missing: {text}; {remedy}", code="file_gone")
    if is_denied or isinstance(error, OSError):
        remedy = "; give this user access, or run as another" if is_denied else ""
        is_refused = is_denied or isinstance(error, PermissionError)  # a bucket refused it
        code = "no_access" if is_refused else "system"
        return WarehouseError(f"cannot continue: {text}{_intact(log)}{remedy}", code=code)
    return None


def _text(error: BaseException) -> str:
    return one_line(_NOISE.sub("", str(error))) or type(error).__name__


def _is_disk_full(error: BaseException | None) -> bool:
    return _DISK_FULL.search(str(error)) is not None


def _full_disk(error: BaseException, log: str | None) -> ResourceError:
    """Name the fullest folder that the command writes to, and how much space it lacks.

    Several callers explain one error while others write, so the first text is kept for all.
    """
    temporary = Path(os.environ.get("TMPDIR", "/tmp"))  # noqa: S108 (Python's own default)
    folders = [folder for folder in WRITTEN_FOLDERS if _free(folder) < _ENOUGH]
    folders += [Path(log).parent, temporary] if log else [temporary]
    fullest = min(filter(Path.is_dir, folders), key=_free)
    # A temporary folder is gone when the user reads the message.
    own = (folder.parent for folder in TEMPORARY_FOLDERS if fullest.is_relative_to(folder))
    full = f"the disk of {next(own, fullest)} is full: {_lack(fullest)}"
    full = vars(error).setdefault("full_disk", full)
    return ResourceError(f"{full}{_intact(log)}; free some space", code="disk_full")


def _lack(folder: Path) -> str:
    """Return what is missing there; files that the command had begun are already removed."""
    disk = os.statvfs(folder)
    if disk.f_files and not disk.f_favail:
        return "it takes no more files (df -i)"
    return f"it needs more than the {size_of(_free(folder))} that are left now"


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free if folder.is_dir() else _ENOUGH


def _intact(log: str | None) -> str:
    """Reassure the user about published tables; the run may fail before or after publishing."""
    return "; what is published is intact" if log else ""
