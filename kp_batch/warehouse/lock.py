"""One writer at a time on a warehouse: by a lock in its folder, and a lease in its bucket.

The lease is an object that names the writer, who renews it while it works. It is advisory: by it
writers wait for each other, and one that was suspended for long learns that another took over. The
data are protected by the conditions of each write, not by the lease: see `bucket.mirror`.
"""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from kp_batch.errors import BusyError, OvertakenError, WarehouseError
from kp_batch.storage.store import ConflictError, Store, store_at
from kp_batch.warehouse.bucket.location import Record, folder_of, make_folder_of, shown
from kp_batch.warehouse.layout import Layout, check_links

_LOCK_TIMEOUT_S = 0.2
# The locks that this context holds. The threads of a run have its context, and so may write, too;
# any other thread is another writer, as another process is.
_HELD: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())
LEASE = "kp.lock"  # the object; by this name, too, a reader of archives recognises a warehouse
_PROBE = "kp.probe"
_RENEW_S = 20.0
_FRESH_S = 45.0  # since the last renewal; until then no other writer takes it
_DEAD_S = 90.0  # since the last renewal, by the store's own clock


@contextmanager
def locked(warehouse: Path, *, wait: float, archive: str = "") -> Generator[bool]:
    """Hold the lock of the warehouse; yields False if this context holds it already.

    The operating system releases the lock of a process that dies; the file, which remains, only
    names the holder.

    Args:
        warehouse: the folder of the tables; made if it is missing.
        wait: for another writer to end: so many seconds at the most.
        archive: the name of the archive, for an import's lock instead of a warehouse's.

    Raises:
        BusyError: another process or thread is writing, for longer than `wait`.
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
        # Readers of a bucket's copy take this lock for a moment: see `bucket.mirror.refresh`.
        lock.acquire(timeout=-1 if wait == inf else max(wait, _LOCK_TIMEOUT_S))
    except Timeout as error:
        raise _busy(archive, shown(warehouse), _lock_holder(path)) from error
    held = _HELD.set(_HELD.get() | {path})
    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        with suppress(OSError):  # its disk may be full
            path.write_text(json.dumps(holder), "utf-8")
        yield True
    finally:
        _HELD.reset(held)
        lock.release()


def holds(warehouse: Path) -> bool:
    """Whether this context holds the lock of the warehouse."""
    return Layout(warehouse.resolve()).lock in _HELD.get()


def holder(warehouse: Path) -> dict[str, Any] | None:
    """Who writes to the warehouse now, as its lock names it; None if nobody does on this machine.

    It looks at the lock without writing to it, as a reader without rights may.
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
    except OSError:  # its file system has no locks, and so has nobody else
        return None
    finally:
        os.close(descriptor)
    return None


def lease_holder(store: Store) -> tuple[dict[str, Any], bool] | None:
    """Who writes to the bucket now, as its lease names it, and whether it was just heard of.

    None if nobody does. The age of the lease is by this machine's clock: nothing is written.

    Raises:
        OSError: the store cannot be asked.
    """
    last, _, age_s = _last_holder(store, time.time_ns())
    return (last, age_s <= _DEAD_S) if "copy" in last else None


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


@dataclass
class Lease:
    """A lease, held until it is released, or taken over since its holder seemed dead."""

    store: Store
    holder: Mapping[str, object]
    etag: str  # of the object as it was before, or as this holder wrote it last
    is_lost: bool = False
    beats: int = 0  # renewals: stores make ETags of the content, so no two have the same
    # By the wall clock: the monotonic one stops while a machine sleeps.
    renewed_at: float = field(default_factory=time.time)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # any thread may renew it

    def check(self) -> None:
        """Stop a writer whose lease was taken over; renews the lease unless it is fresh.

        Raises:
            OvertakenError: another writer has taken it.
            OSError: the store cannot be asked.
        """
        if not 0 <= time.time() - self.renewed_at <= _FRESH_S:
            self.renew()
        if self.is_lost:
            raise OvertakenError(
                f"{self.store.url} was taken over by another writer, since this one was not heard "
                "of for too long; what is published is whole; run again"
            )

    def renew(self) -> None:
        """Renew the lease, unless it is lost.

        Raises:
            OSError: the store cannot be asked; the lease counts as held.
        """
        with self._lock:
            now = time.time()
            # If the store's answer is lost, the next renewal writes the same content once more.
            content = json.dumps({**self.holder, "beats": self.beats}).encode()
            try:
                if not self.is_lost:
                    self.etag = self.store.write(LEASE, content, instead_of=self.etag)
                    self.beats += 1
            except ConflictError:
                self.is_lost = True
            self.renewed_at = now


@contextmanager
def leased(store: Store, copy_id: str, archive: str = "") -> Generator[Lease]:
    """Hold the lease of a warehouse in a bucket, or of an archive: see `locked`.

    Only this process works on this machine's copy, which has the id.

    Raises:
        BusyError: another process is writing.
        WarehouseError: the store ignores conditions, so that writers would not notice each other.
    """
    holder = {
        "copy": copy_id,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(),
    }
    lease = _take_lease(store, holder, archive)
    ended = threading.Event()

    def keep_renewing() -> None:
        while not ended.wait(_RENEW_S):
            with suppress(OSError):  # the next renewal may succeed
                lease.renew()

    renewing = threading.Thread(target=keep_renewing, name="kp-lease", daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        ended.set()
        renewing.join()
        if not lease.is_lost:
            with suppress(ConflictError, OSError):  # then it expires
                store.write(LEASE, b"{}", instead_of=lease.etag)


@contextmanager
def archive_lease(url: str, archive: str) -> Generator[Lease]:
    """Hold the lock and the lease of an archive that is imported into a bucket.

    Raises:
        BusyError: another process is writing.
        WarehouseError: nothing can be written there.
        OSError: it cannot be read or written.
    """
    folder = Path(folder_of(url))
    with locked(folder, wait=False, archive=archive):
        record = Record.of(folder)
        record.save()  # its id identifies the lease of a writer that was killed on this machine
        with leased(store_at(url), record.copy_id, archive) as lease:
            yield lease


def release_of_gone(store: Store, copy_id: str, pid: int) -> None:
    """Release the lease that a process held which is gone, whose copy is on this machine.

    Raises:
        ConflictError: another writer has taken it meanwhile.
        OSError: the store cannot be asked.
    """
    last, etag, _ = _last_holder(store, 0)
    gone = {"copy": copy_id, "host": socket.gethostname(), "pid": pid}
    if gone.items() <= last.items():
        store.write(LEASE, b"{}", instead_of=etag)


def _take_lease(store: Store, holder: Mapping[str, object], archive: str) -> Lease:
    now_ns = _probe(store)
    last, etag, age_s = _last_holder(store, now_ns)
    # A holder of this very copy is dead, as this process has the copy's lock.
    is_own = all(last.get(name) == holder[name] for name in ("copy", "host"))
    if "copy" not in last or is_own or age_s > _DEAD_S:
        lease = Lease(store, holder, etag)
        lease.renew()
        if not lease.is_lost:
            return lease
        last, _, age_s = _last_holder(store, now_ns)  # another writer was faster
    writer = (
        f"process {last.get('pid')} on {last.get('host')} since {last.get('since')}, "
        f"last heard of {max(age_s, 0):.0f} s ago"
    )
    raise _busy(archive, store.url, writer)


def _last_holder(store: Store, now_ns: int) -> tuple[dict[str, object], str, float]:
    """The lease's content, its ETag, and the seconds since its renewal; empty if there is none."""
    try:
        content, head = store.read(LEASE)
    except FileNotFoundError:
        return {}, "", 0.0
    holder: dict[str, object] = {}
    with suppress(ValueError, TypeError):  # not written by kp_batch
        holder = dict(json.loads(content))
    return holder, head.etag, (now_ns - head.mtime_ns) / 1e9


def _probe(store: Store) -> int:
    """Check that the store respects conditions; returns its clock's time, in nanoseconds."""
    etag = store.write(_PROBE, b"1")  # other writers may probe at the same time
    for other in ("", uuid4().hex):
        with suppress(ConflictError):
            store.write(_PROBE, b"2", instead_of=other)
            raise WarehouseError(
                f"{store.url} does not keep the conditions of a write (If-Match), so that two "
                "writers could overwrite each other; choose another store"
            )
    head = store.head(_PROBE)
    if head is None or not etag:
        raise WarehouseError(f"{store.url} tells no ETag of what it has; choose another store")
    return head.mtime_ns
