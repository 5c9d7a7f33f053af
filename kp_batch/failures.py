"""Explains errors of the machine, and faults of ours, in one line."""

import os
import re
import shutil
from pathlib import Path

from kp_batch.errors import KpBatchError, ResourceError, WarehouseError
from kp_batch.files import FOLDERS, OWN
from kp_batch.text import one_line

# The last one is DuckDB's, which calls it a lack of memory: it takes nine tenths of what is free.
_FULL = ("No space left on device", "os error 28", "disk is full", "max_temp_directory_size")
# DuckDB's and Polars', of files of the tables.
_GONE = ("IO Error: No files found", "IO Error: Cannot open file", "(os error 2)")
_ROOM = 1 << 20  # bytes, of a disk that has some
_NOISE = re.compile(r"\x1b\[[0-9;]*m|^\[Errno \d+\] ")  # delta-rs's colours, Python's numbers


def explained(error: BaseException, log: str | None = None) -> KpBatchError:
    """Explain why a command failed: by what the user can put right, else as a fault of ours.

    Args:
        error: what it raised.
        log: where the details are, in the warehouse; None for a command that publishes nothing.
    """
    if told := known(error, log):
        return told
    details = f"; details are in {log}" if log else ""
    return KpBatchError(f"unexpected {type(error).__name__}: {_text(error)}{details}")


def known(error: BaseException, log: str | None = None) -> KpBatchError | None:
    """Explain an error that the user can put right; None if it is another one; see `explained`."""
    if isinstance(error, KpBatchError):
        # That a warehouse cannot be read may be what DuckDB makes of a full temporary folder.
        is_full = isinstance(error, WarehouseError) and _tells_of_full_disk(error.__cause__)
        return _full_disk(log) if is_full else error
    if _tells_of_full_disk(error):
        return _full_disk(log)
    text = _text(error)
    if "Failed to reach API" in text:
        return KpBatchError(f"{text}; start that Prefect server, or run with --no-prefect")
    is_denied = "Permission denied" in text
    if not is_denied and any(sign in text for sign in _GONE):
        remedy = "ask again if another command removed it meanwhile, else restore it from a copy"
        return WarehouseError(f"a file is gone: {text}; {remedy}")
    if is_denied or isinstance(error, OSError):
        remedy = "; give this user access, or run as another" if is_denied else ""
        return WarehouseError(f"cannot go on: {text}{_whole(log)}{remedy}")
    return None


def _text(error: BaseException) -> str:
    return one_line(_NOISE.sub("", str(error))) or type(error).__name__


def _tells_of_full_disk(error: BaseException | None) -> bool:
    return any(sign in str(error) for sign in _FULL)


def _full_disk(log: str | None) -> ResourceError:
    """Name the fullest of the folders that a command writes to."""
    temporary = Path(os.environ.get("TMPDIR", "/tmp"))  # noqa: S108 (where Python looks as well)
    folders = [Path(log).parent, temporary] if log else [temporary]
    others = [each for each in FOLDERS if _free(each) < _ROOM]
    fullest = min((each for each in (*others, *folders) if each.is_dir()), key=_free)
    lasting = next((own.parent for own in OWN if fullest.is_relative_to(own)), fullest)
    return ResourceError(f"the disk of {lasting} is full{_whole(log)}; free some space")


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free if folder.is_dir() else _ROOM


def _whole(log: str | None) -> str:
    """Whether this run is published or not: it may fail after that."""
    return "; what is published is whole" if log else ""
