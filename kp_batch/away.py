"""Files of a warehouse that are not here yet, and those that are to go from there.

A night reads few of the vectors that a warehouse in a bucket has: of the others, a note stands in
its working copy beside the name. What a writer means to remove is told by name: what a disk or a
user has lost is never taken for that.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from kp_batch.errors import WarehouseError
from kp_batch.storage.store import store_at
from kp_batch.warehouse.places import object_of

FETCHED_NS = 0  # the time of a file that was fetched, by which it is known not to be new
NOTE = ".away"
_FETCHING = [Lock() for _ in range(16)]  # threads that need the same file wait for each other
_LISTENING: list[set[Path]] = []


def leave_away(path: Path) -> None:
    """Note that a file of a working copy is an object, which `object_of` names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    note_of(path).touch()
    path.unlink(missing_ok=True)


def note_of(path: Path) -> Path:
    """Where the note of a file stands while it is away."""
    return path.with_name(path.name + NOTE)


def is_note(path: Path) -> bool:
    """Whether a path is that of a note."""
    return path.name.endswith(NOTE)


def here(path: Path) -> Path:
    """The path of a file, which is fetched first if it is away; it may be in neither place.

    A note in a folder that is no working copy is nobody's: it has nothing fetched.

    Raises:
        OSError: it cannot be fetched.
    """
    if path.exists():
        return path
    note = note_of(path)
    with _FETCHING[hash(path) % len(_FETCHING)], suppress(FileNotFoundError):
        # Another process may have fetched it.
        if not path.exists() and note.exists() and (found := object_of(path)):
            url, name = found
            store_at(url).download(name, path, mtime_ns=FETCHED_NS)
            note.unlink(missing_ok=True)
    return path


@contextmanager
def removals() -> Generator[set[Path]]:
    """Gives the files, or notes, that `remove` removes meanwhile."""
    removed: set[Path] = set()
    _LISTENING.append(removed)
    try:
        yield removed
    finally:
        _LISTENING.remove(removed)


def remove(path: Path) -> None:
    """Remove a file; from the bucket, too, when its turn comes.

    Raises:
        OSError: it cannot be removed.
    """
    path.unlink()
    for removed in _LISTENING:
        removed.add(path)


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
