"""One writer at a time on a warehouse: by a lock in its folder, and a lease in its bucket.

The lease is an object that says who is writing, which its writer renews meanwhile. It is advice, by
which writers wait for each other, and one that was away for long learns that it was taken over.
What keeps two of them from harm are the conditions of what they store: see `bucket.mirror`.
"""

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
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from kp_batch.errors import BusyError, WarehouseError, busy
from kp_batch.storage.store import ConflictError, Store, store_at
from kp_batch.warehouse.bucket.location import Record, folder_of, make_folder_of, shown
from kp_batch.warehouse.layout import Layout, check_links

_MOMENT_S = 0.2
# The locks that are held here, and in threads that were given this context: by them the work of a
# run is known, whose parts may write. Any other thread is another writer, as another process is.
_HELD: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())
LEASE = "kp.lock"  # the object, by which an archive's reader knows a warehouse, too
_PROBE = "kp.probe"
_BEAT_S = 20.0
_FRESH_S = 45.0  # since a beat, while nobody else takes it
_DEAD_S = 90.0  # without a beat; by the store's own clock


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
        raise busy(archive or shown(warehouse), _lock_holder(path), waits=not archive) from error
    held = _HELD.set(_HELD.get() | {path})
    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        path.write_text(json.dumps(who), "utf-8")
        yield True
    finally:
        _HELD.reset(held)
        lock.release()


def _lock_holder(path: Path) -> str:
    try:
        who = json.loads(path.read_text("utf-8"))
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "it has just begun"


@dataclass
class Lease:
    """Held until it is given back, or somebody takes it from a holder that seems dead."""

    store: Store
    who: Mapping[str, object]
    etag: str  # of what it was, or of the last beat
    is_lost: bool = False
    beats: int = 0  # so that no two have the same content, of which stores make ETags
    # By the wall's clock: the monotonic one stands still while a machine sleeps.
    beaten: float = field(default_factory=time.time)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # whoever checks it may renew it

    def check(self) -> None:
        """Stop a writer that was taken over; the lease is renewed unless it was just now.

        Raises:
            BusyError: another writer has it by now.
            OSError: the store cannot be asked.
        """
        if not 0 <= time.time() - self.beaten <= _FRESH_S:
            self.beat()
        if self.is_lost:
            raise BusyError(
                f"{self.store.url} was taken over by another writer, since this one was not heard "
                "of for too long; what is published is whole; run again"
            )

    def beat(self) -> None:
        """Renew it, unless it is lost.

        Raises:
            OSError: the store cannot be asked; it is held until it is known to be lost.
        """
        with self._lock:
            now = time.time()
            # If its answer is lost, the next one finds it, as its content is the same.
            content = json.dumps({**self.who, "beats": self.beats}).encode()
            try:
                if not self.is_lost:
                    self.etag = self.store.write(LEASE, content, instead_of=self.etag)
                    self.beats += 1
            except ConflictError:
                self.is_lost = True
            self.beaten = now


@contextmanager
def leased(store: Store, copy_id: str, archive: str = "") -> Generator[Lease]:
    """Hold the lease of a warehouse in a bucket.

    Args:
        store: of the warehouse.
        copy_id: of this machine's copy, on which only this process works.
        archive: see `locked`.

    Raises:
        BusyError: another process is writing.
        WarehouseError: the store keeps no conditions, so that writers would not see each other.
    """
    who = {
        "copy": copy_id,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(),
    }
    lease = _taken(store, who, archive)
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(_BEAT_S):
            with suppress(OSError):  # the next beat may be heard
                lease.beat()

    beating = threading.Thread(target=renew, name="kp-lease", daemon=True)
    beating.start()
    try:
        yield lease
    finally:
        ended.set()
        beating.join()
        if not lease.is_lost:
            with suppress(ConflictError, OSError):  # it dies by itself, then
                store.write(LEASE, b"{}", instead_of=lease.etag)


@contextmanager
def archive_lease(url: str, archive: str) -> Generator[Lease]:
    """Be the only one who writes below a URL of an archive, where no warehouse stands.

    Raises:
        BusyError: another process is writing.
        WarehouseError: nothing can be written there.
        OSError: it cannot be read or written.
    """
    folder = Path(folder_of(url))
    with locked(folder, wait=False, archive=archive):
        record = Record.of(folder)
        record.keep()  # by its id, the lease of one that was killed here is known
        with leased(store_at(url), record.copy_id, archive) as lease:
            yield lease


def _taken(store: Store, who: Mapping[str, object], archive: str) -> Lease:
    now_ns = _probed(store)
    holder, etag, age_s = _lease_holder(store, now_ns)
    is_own = all(holder.get(name) == who[name] for name in ("copy", "host"))  # and not at work
    if "copy" not in holder or is_own or age_s > _DEAD_S:
        lease = Lease(store, who, etag)
        lease.beat()
        if not lease.is_lost:
            return lease
        holder, _, age_s = _lease_holder(store, now_ns)  # another one was faster
    told = (
        f"process {holder.get('pid')} on {holder.get('host')} since {holder.get('since')}, "
        f"last heard of {max(age_s, 0):.0f} s ago"
    )
    raise busy(archive or store.url, told, waits=not archive)


def _lease_holder(store: Store, now_ns: int) -> tuple[dict[str, object], str, float]:
    """Who holds the lease, its ETag, and how long ago it was renewed; no ETag if there is none."""
    try:
        content, found = store.read(LEASE)
    except FileNotFoundError:
        return {}, "", 0.0
    try:
        holder = dict(json.loads(content))
    except (ValueError, TypeError):  # somebody else's
        holder = {}
    return holder, found.etag, (now_ns - found.mtime_ns) / 1e9


def _probed(store: Store) -> int:
    """Try whether the store keeps conditions; returns its time, in nanoseconds."""
    etag = store.write(_PROBE, b"1")  # which others may do at the same time
    for other in ("", uuid4().hex):
        with suppress(ConflictError):
            store.write(_PROBE, b"2", instead_of=other)
            raise WarehouseError(
                f"{store.url} does not keep the conditions of a write (If-Match), so that two "
                "writers could overwrite each other; choose another store"
            )
    found = store.head(_PROBE)
    if found is None or not etag:
        raise WarehouseError(f"{store.url} tells no ETag of what it has; choose another store")
    return found.mtime_ns
