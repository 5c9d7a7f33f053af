"""Files of a bucket's working copy that stand there alone, and those that are to go from there.

A night reads few of the vectors that a warehouse has: of the others, a note beside the name tells
where they are. What a writer means to remove is told by name: what a disk or a user has lost is
never taken for that.
"""

import json
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from kp_batch.storage.store import store_at
from kp_batch.whole_files import whole

FETCHED_NS = 0  # the time of a file that was fetched, by which it is known not to be new
NOTE = ".away"
_FETCHING = [Lock() for _ in range(16)]  # threads that need the same file wait for each other
_LISTENING: list[set[Path]] = []


def leave_away(path: Path, url: str, name: str) -> None:
    """Note that a file is an object: the one of that name below the URL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(note_of(path)) as written:
        written.write_text(json.dumps([url, name]), "utf-8")
    path.unlink(missing_ok=True)


def note_of(path: Path) -> Path:
    """Where the note of a file stands while it is away."""
    return path.with_name(path.name + NOTE)


def is_note(path: Path) -> bool:
    """Whether a path is that of a note."""
    return path.name.endswith(NOTE)


def here(path: Path) -> Path:
    """The path of a file, which is fetched first if it is away; it may be in neither place.

    Raises:
        OSError: it cannot be fetched.
    """
    if path.exists():
        return path
    note = note_of(path)
    with _FETCHING[hash(path) % len(_FETCHING)], suppress(FileNotFoundError):
        if not path.exists():  # another process may have fetched it
            url, name = json.loads(note.read_text("utf-8"))
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
    tell_removed([path])


def remove_folder(path: Path) -> None:
    """Remove a folder with all that it holds, likewise.

    Raises:
        OSError: it cannot be removed.
    """
    files = list(path.rglob("*"))
    shutil.rmtree(path)
    tell_removed(files)


def tell_removed(files: Iterable[Path]) -> None:
    """Tell that files were removed, as by `remove`."""
    told = list(files)
    for removed in _LISTENING:
        removed.update(told)
