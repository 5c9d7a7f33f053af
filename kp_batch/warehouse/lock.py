"""One writer at a time on a warehouse."""

import json
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from kp_batch.errors import busy
from kp_batch.warehouse.bucket.location import make_folder_of, shown
from kp_batch.warehouse.layout import Layout, check_links

_MOMENT_S = 0.2
# The locks that are held here, and in threads that were given this context: by them the work of a
# run is known, whose parts may write. Any other thread is another writer, as another process is.
_HELD: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())


@contextmanager
def locked(warehouse: Path, *, wait: bool, archive: str = "") -> Generator[bool]:
    """Hold the lock of the warehouse; gives whether this context did not hold it already.

    The operating system releases the lock of a process that dies, so no lock is ever left behind;
    the file that remains only tells who holds it.

    Args:
        warehouse: the folder of the tables; made if it is missing.
        wait: whether to wait for another writer to end.
        archive: the name of the archive that is imported into, if it is none of a warehouse.

    Raises:
        BusyError: another process or thread is writing, and `wait` is false.
        WarehouseError: a link in the warehouse leads elsewhere; see `check_links`.
    """
    make_folder_of(warehouse)
    path = Layout(warehouse.resolve()).lock
    if path in _HELD.get():
        yield False
        return
    check_links(warehouse)
    lock = FileLock(path, thread_local=False)
    try:
        # A reader of a bucket's copy looks for a moment whether there is a writer.
        lock.acquire(timeout=-1 if wait else _MOMENT_S)
    except Timeout as error:
        raise busy(archive or shown(warehouse), _holder(path), waits=not archive) from error
    held = _HELD.set(_HELD.get() | {path})
    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        path.write_text(json.dumps(who), "utf-8")
        yield True
    finally:
        _HELD.reset(held)
        lock.release()


def _holder(path: Path) -> str:
    try:
        who = json.loads(path.read_text("utf-8"))
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "it has just begun"
