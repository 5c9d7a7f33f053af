"""Errors for users, and which failures may be over soon.

Every message says what happened, to what, and what to do next.
"""

import errno
import os
from collections.abc import Collection
from typing import Any

# What the disk and the network report that may be over soon; nothing else is tried again.
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
# What a machine is short of, which tells nothing of the file that is read meanwhile.
_SHORT = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class KpBatchError(Exception):
    """An error that the user can put right. The command line prints it as one line and exits 1."""


class AuditError(KpBatchError):
    """Audits found rows that must not be; `results` holds what each of all of them found."""

    def __init__(self, message: str, results: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.results = results


class ArchiveError(KpBatchError):
    """The archive cannot be scored: nothing found, nothing acceptable, too much rejected."""


class EncoderError(KpBatchError):
    """The encoder cannot be loaded, or its vectors cannot be used."""


class ProfileError(KpBatchError):
    """A profiles file has faults; the message lists all of them."""


class ResourceError(KpBatchError):
    """The machine has too little memory or too little disk for a run."""


class StorageError(KpBatchError):
    """The disk or the network failed, each time that it was tried."""


class TraceError(KpBatchError):
    """One trace cannot be scored; `reasons` holds the codes of all its faults."""

    def __init__(self, message: str, reasons: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.reasons = reasons


class WarehouseError(KpBatchError):
    """The warehouse is missing, damaged, or cannot be written."""


class WorkerError(KpBatchError):
    """Ray is missing, or its cluster cannot do the work."""


class BusyError(WarehouseError):
    """Another process is writing to the warehouse."""


def busy(where: str, holder: str, *, waits: bool) -> BusyError:
    """The error of who finds another writer.

    Args:
        where: the warehouse, or the archive, as its user names it.
        holder: who it is.
        waits: whether the command has --wait.
    """
    remedy = "wait for its end with --wait, or run later" if waits else "import again later"
    return BusyError(f"another run is writing to {where} ({holder}); {remedy}")


def is_passing(error: BaseException) -> bool:
    """Whether a failure may be over soon: of the disk or the network, not of the logic.

    Libraries that are not written in Python tell the system's error in words alone. An error that
    was raised from a passing one is passing.
    """
    if isinstance(error, KpBatchError):
        return False
    if isinstance(error, ConnectionError | TimeoutError) or _tells(error, _PASSING):
        return True
    return error.__cause__ is not None and is_passing(error.__cause__)


def is_of_machine(error: BaseException) -> bool:
    """Whether this machine is short of disk, memory or open files: no file is at fault for that."""
    return isinstance(error, MemoryError) or _tells(error, _SHORT)


def _tells(error: BaseException, numbers: Collection[int]) -> bool:
    if getattr(error, "errno", 0) in numbers:
        return True
    return any(os.strerror(number) in str(error) for number in numbers)
