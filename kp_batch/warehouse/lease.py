"""One writer at a time on a bucket: an object says who, and who holds it renews it meanwhile."""

import json
import os
import socket
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from kp_batch.errors import BusyError, WarehouseError, busy
from kp_batch.storage.faults import ConflictError
from kp_batch.storage.store import Store

LEASE = "kp.lock"  # the object, by which an archive's reader knows a warehouse, too
_PROBE = "kp.probe"
_BEAT_S = 20.0
_FRESH_S = 45.0  # since a beat, while it is held for sure
_DEAD_S = 90.0  # without a beat; by the store's own clock


@dataclass
class Lease:
    """Held until it is given back, or somebody takes it from a holder that seems dead."""

    store: Store
    who: Mapping[str, object]
    etag: str
    beats: int = 0  # no two writes are the same
    is_lost: bool = False
    # By the wall's clock: the monotonic one stands still while a machine sleeps.
    beaten: float = field(default_factory=time.time)
    _beating: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Make sure that it is still held; it is renewed unless it was just now.

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
        with self._beating:
            if self.is_lost:
                return
            self.beats += 1
            text, now = json.dumps({**self.who, "beats": self.beats}), time.time()
            try:
                self.etag = self.store.write(LEASE, text.encode(), instead_of=self.etag)
            except (ConflictError, FileNotFoundError):
                # It may be this one's own, of a beat whose answer was lost.
                holder, etag, _ = _holder(self.store, 0)
                self.is_lost = any(holder.get(name) != each for name, each in self.who.items())
                self.etag = self.etag if self.is_lost else etag
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
    lease = Lease(store, who, _taken(store, who, archive))
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


def _taken(store: Store, who: Mapping[str, object], archive: str) -> str:
    """Take the lease; returns its ETag."""
    now_ns = _probed(store)
    holder, etag, age_s = _holder(store, now_ns)
    is_own = all(holder.get(name) == who[name] for name in ("copy", "host"))  # and not at work
    if "copy" not in holder or is_own or age_s > _DEAD_S:
        with suppress(ConflictError):  # another one was faster
            return store.write(LEASE, json.dumps(who).encode(), instead_of=etag, new=not etag)
        holder, _, age_s = _holder(store, now_ns)
    told = (
        f"process {holder.get('pid')} on {holder.get('host')} since {holder.get('since')}, "
        f"last heard of {max(age_s, 0):.0f} s ago"
    )
    raise busy(archive or store.url, told, waits=not archive)


def _holder(store: Store, now_ns: int) -> tuple[dict[str, object], str, float]:
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
            store.write(_PROBE, b"2", instead_of=other, new=not other)
            raise WarehouseError(
                f"{store.url} does not keep the conditions of a write (If-Match), so that two "
                "writers could overwrite each other; choose another store"
            )
    found = store.look(_PROBE)
    if found is None or not etag:
        raise WarehouseError(f"{store.url} tells no ETag of what it has; choose another store")
    return found.mtime_ns
