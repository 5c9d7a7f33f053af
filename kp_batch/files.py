"""Files that appear whole or not at all, folders without links, and what is kept for the user.

What is kept for the user stands in `$XDG_CACHE_HOME/kp-batch`, by default below `~/.cache`, and
belongs to no warehouse. Losing it costs time, nothing else, so whatever is in its way is no error.
Where several processes write a file at once, the last one wins.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from uuid import uuid4

from kp_batch.errors import FOLDERS, WarehouseError

HALF_WRITTEN = ".part"  # the ending of a file that is not whole yet
_NOTES: list[int] = []  # the file that names what this process would leave, if there is one


def temporary_sibling(path: Path) -> Path:
    """A name for a file until it is whole: no other worker's, which may be writing the same one.

    It begins with neither a dot nor an underscore unless the path does: Delta's vacuum would pass
    over such a file, which a killed worker left.
    """
    written = path.with_name(f"{path.name}.{uuid4().hex}{HALF_WRITTEN}")
    FOLDERS.add(path.parent)
    note_leftover(written)
    return written


@contextmanager
def atomic_write(path: Path, *, durable: bool = False) -> Generator[Path]:
    """Give the name to write a file under, which takes the path's place at the end.

    It is removed where anything is raised. Where nothing was written the path stays as it is.

    Args:
        path: the file.
        durable: whether to wait until its content is on the disk, so that a machine that fails
            leaves the old file or this one, and never an empty one; `sync_names` does the rest.
    """
    written = temporary_sibling(path)
    try:
        yield written
        if written.exists():
            if durable:
                sync(written)
            written.replace(path)
    except BaseException:  # a signal, or a panic in Rust, is no Exception
        with suppress(OSError):  # of a full disk, say: the error that counts was before
            written.unlink(missing_ok=True)
        raise


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
            else:
                with suppress(OSError):
                    path.unlink()


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


def files_below(folder: Path) -> list[Path]:
    """All files in a folder of a warehouse, at any depth, in order; none where it is missing.

    Raises:
        WarehouseError: it is a link, or holds one: what that leads to is not the warehouse's.
    """
    refuse_link(folder)
    files: list[Path] = []
    ahead = [str(folder)]
    while ahead:
        try:
            entries = os.scandir(ahead.pop())
        except (FileNotFoundError, NotADirectoryError):
            continue
        with entries:
            for entry in entries:
                if entry.is_symlink():
                    refuse_link(Path(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    ahead.append(entry.path)
                else:
                    files.append(Path(entry.path))
    return sorted(files)


def refuse_link(path: Path) -> None:
    """Refuse a link where a writer works.

    Raises:
        WarehouseError: the path is one.
    """
    if path.is_symlink():
        raise WarehouseError(
            f"{path} is a link: files that it leads to could be changed or removed; remove it, or "
            "put what it leads to in its place (a warehouse as a whole may stand behind a link)"
        )


def read_cache(name: str) -> str | None:
    """Read a file that is kept for the user; None if it is missing, or no text."""
    with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: the user has no home
        return (cache_folder() / name).read_text("utf-8")
    return None


def write_cache(name: str, text: str) -> None:
    """Keep a file for the user, in place of the one of that name."""
    with suppress(OSError, RuntimeError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / name) as written:
            written.write_text(text, "utf-8")


def cache_folder() -> Path:
    """The folder of what is kept for the user; it may be missing."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kp-batch"
