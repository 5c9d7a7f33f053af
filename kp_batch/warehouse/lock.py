"""One writer at a time on a warehouse: a lock in its folder, and a notice in its bucket.

The notice is an object that names the writer while it works. It only informs other machines. What
is published is protected by the condition of one write; see `bucket.mirror`.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kp_batch.errors import BusyError
from kp_batch.storage.store import Store, store_at
from kp_batch.warehouse.bucket.location import CopyRecord, folder_of, make_folder_of, shown
from kp_batch.warehouse.layout import Layout, check_links

_LOCK_TIMEOUT_S = 0.2
# The locks that this context holds. The threads of a run share its context, and so may write, too.
# Any other thread is another writer, like another process.
_OWN_LOCKS: ContextVar[frozenset[Path]] = ContextVar("own_locks", default=frozenset())
NOTICE = "kp.lock"  # the object, by which readers of archives also recognise a warehouse
# An older notice stops nobody: its writer may have been killed. If it was not, the condition
# of its publication decides.
NOTICE_TTL_S = 3_600.0


@contextmanager
def locked(warehouse: Path, *, wait: float, archive: str = "") -> Generator[bool]:
    """Hold the lock of the warehouse; yield False if this context holds it already.

    The operating system releases the lock of a process that dies; the file, which remains, only
    names the holder.

    Args:
        warehouse: the folder of the tables; made if it is missing.
        wait: how many seconds to wait for another writer.
        archive: the name of the archive, for an import's lock instead of a warehouse's.

    Raises:
        BusyError: another process or thread is writing, for longer than `wait`.
        WarehouseError: a link in the warehouse leads elsewhere; see `check_links`.
    """
    make_folder_of(warehouse)
    path = Layout(warehouse.resolve()).lock
    if path in _OWN_LOCKS.get():
        yield False
        return
    check_links(warehouse)
    lock = FileLock(path, thread_local=False)
    try:
        # Readers of a bucket's copy take this lock for a moment: see `bucket.mirror.refresh`.
        lock.acquire(timeout=-1 if wait == inf else max(wait, _LOCK_TIMEOUT_S))
    except Timeout as error:
        raise _busy(archive, shown(warehouse), _lock_holder(path)) from error
    token = _OWN_LOCKS.set(_OWN_LOCKS.get() | {path})
    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        with suppress(OSError):  # the disk may be full
            path.write_text(json.dumps(holder), "utf-8")
        yield True
    finally:
        _OWN_LOCKS.reset(token)
        lock.release()


def may_write(warehouse: Path) -> bool:
    """Whether this user may take the lock of a warehouse, and add files to its folder."""
    lock = Layout(warehouse.resolve()).lock
    return os.access(warehouse, os.W_OK) and (not lock.exists() or os.access(lock, os.W_OK))


def has_lock(warehouse: Path) -> bool:
    """Whether this context holds the lock of the warehouse."""
    return Layout(warehouse.resolve()).lock in _OWN_LOCKS.get()


def holder(warehouse: Path) -> dict[str, Any] | None:
    """Return who writes to the warehouse now, by its lock; None if nobody does on this machine.

    It inspects the lock without writing to it, so that readers without rights may call it.
    """
    path = Layout(warehouse).lock
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _named_holder(path)
    except OSError:  # its file system has no locks, so nobody holds one
        return None
    finally:
        os.close(descriptor)
    return None


def noticed_writer(store: Store) -> dict[str, Any] | None:
    """Return who writes to the bucket now, or was killed while writing, by its notice; or None.

    Raises:
        OSError: the store does not answer.
    """
    return _read_notice(store)[0] or None


def _busy(archive: str, warehouse: str, holder: str) -> BusyError:
    place = archive or warehouse
    return BusyError(f"another run is writing to {place} ({holder}); try again when it has ended")


def _lock_holder(path: Path) -> str:
    named = _named_holder(path)
    if not named.keys() >= {"pid", "host", "since"}:
        return "it has just begun"
    return f"process {named['pid']} on {named['host']} since {named['since']}"


def _named_holder(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, TypeError, RecursionError):
        return dict(json.loads(path.read_text("utf-8")))
    return {}


@contextmanager
def noticed(store: Store, copy_id: str, archive: str = "") -> Generator[None]:
    """Leave a notice in the bucket of a warehouse or archive while this process writes to it.

    Only this process works on this machine's copy, whose id is in the notice.

    Raises:
        BusyError: another process began to write within the last hour, and has not finished.
        OSError: the store does not answer.
    """
    own = {
        "copy": copy_id,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(),
    }
    last, age_s = _read_notice(store)
    # A writer of this very copy is dead, because this process has the copy's lock.
    is_own = all(last.get(name) == own[name] for name in ("copy", "host"))
    if last and not is_own and age_s < NOTICE_TTL_S:
        writer = f"process {last.get('pid')} on {last.get('host')} since {last.get('since')}"
        raise _busy(archive, store.url, writer)
    store.write(NOTICE, json.dumps(own).encode())
    try:
        yield
    finally:
        with suppress(OSError):  # then the notice stays for an hour
            _withdraw(store, own)


def _withdraw(store: Store, own: dict[str, Any]) -> None:
    """Remove a notice, unless another writer's has replaced it."""
    if own.items() <= _read_notice(store)[0].items():
        store.write(NOTICE, b"{}")


def _read_notice(store: Store) -> tuple[dict[str, Any], float]:
    """Return the notice, empty if there is none, and its age in seconds by this machine's clock."""
    try:
        content, head = store.read(NOTICE)
    except FileNotFoundError:
        return {}, 0.0
    notice: dict[str, Any] = {}
    with suppress(ValueError, TypeError):  # not written by kp_batch
        notice = dict(json.loads(content))
    if "copy" not in notice:  # withdrawn, or a folder's lock that was copied into the bucket
        return {}, 0.0
    return notice, (time.time_ns() - head.mtime_ns) / 1e9


@contextmanager
def archive_notice(url: str, archive: str) -> Generator[None]:
    """Hold the lock of an archive that is imported into a bucket, and leave a notice there.

    Raises:
        BusyError: another process is writing.
        OSError: the bucket cannot be read or written.
    """
    folder = Path(folder_of(url))
    with locked(folder, wait=False, archive=archive):
        record = CopyRecord.of(folder)
        record.save()  # its id marks the notice of a writer that is killed on this machine
        with noticed(store_at(url), record.copy_id, archive):
            yield


def withdraw_of_gone(store: Store, copy_id: str, pid: int) -> None:
    """Remove the notice of a dead process whose copy is on this machine.

    Raises:
        OSError: the store does not answer.
    """
    _withdraw(store, {"copy": copy_id, "host": socket.gethostname(), "pid": pid})
