"""Files that appear whole or not at all."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from uuid import uuid4

HALF_WRITTEN = ".part"  # the ending of a file that is not whole yet
FOLDERS: set[Path] = set()  # where this process has begun files
_NOTES: list[int] = []  # the file that names what this process would leave, if there is one


def beside(path: Path) -> Path:
    """A name for a file until it is whole: no other worker's, which may be writing the same one.

    It begins with neither a dot nor an underscore unless the path does: Delta's vacuum would pass
    over such a file, which a killed worker left.
    """
    written = path.with_name(f"{path.name}.{uuid4().hex}{HALF_WRITTEN}")
    FOLDERS.add(path.parent)
    note_leftover(written)
    return written


def note_leftovers_in(notes: Path) -> None:
    """Have a file name what this process would leave if it were killed: see `note_leftover`."""
    _NOTES.append(os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))


def note_leftover(path: Path) -> None:
    """Note a file, or a folder, that this process removes, whose name no other one uses."""
    for notes in _NOTES:
        with suppress(OSError):  # that disk may be full
            os.write(notes, os.fsencode(path.absolute()) + b"\0")


def remove_leftovers(notes: Path) -> None:
    """Remove what a process has left that noted it."""
    with suppress(OSError):
        for name in notes.read_bytes().split(b"\0")[:-1]:
            path = Path(os.fsdecode(name))
            if path.is_dir() and not path.is_symlink():
                rmtree(path, ignore_errors=True)
                with suppress(OSError):  # it holds those of others
                    path.parent.rmdir()
            else:
                with suppress(OSError):
                    path.unlink()


def put(written: Path, path: Path) -> None:
    """Let a file take the path's place once its content is on the disk; `sync_names` does the rest.

    A machine that fails leaves the old file or this one, and never an empty one.
    """
    sync(written)
    written.replace(path)


def sync(path: Path) -> None:
    """Wait until what a path holds is on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_names(folder: Path) -> None:
    """Wait until a folder's names are on the disk, where its file system can tell."""
    with suppress(OSError):
        sync(folder)


@contextmanager
def whole(path: Path) -> Generator[Path]:
    """Give the name to write a file under; it takes the path's place unless an error comes up."""
    written = beside(path)
    try:
        yield written
        written.replace(path)
    except BaseException as error:
        from polars.exceptions import PanicException  # takes a while, and is no Exception

        if isinstance(error, Exception | PanicException):
            written.unlink(missing_ok=True)
        raise
