"""Files that stand in a bucket until they are read: here, a note beside the name tells where.

A night reads few of the vectors that a warehouse has: its working copy has notes of the others.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock

from kp_batch.storage.store import store_at
from kp_batch.whole_files import whole

FETCHED_NS = 0  # the time of a file that was fetched, by which it is known not to be new
NOTE = ".away"
_FETCHING = Lock()  # threads that need the same file wait for each other


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
    """The path of a file, which is fetched first if it is away.

    Raises:
        OSError: it cannot be fetched.
    """
    note = note_of(path)
    with _FETCHING, suppress(FileNotFoundError):  # another process may have fetched it
        if not path.exists():
            url, name = json.loads(note.read_text("utf-8"))
            store_at(url).download(name, path)
            os.utime(path, ns=(FETCHED_NS, FETCHED_NS))
            note.unlink(missing_ok=True)
    return path
