"""One writer at a time on a bucket: an object says who, and who holds it renews it meanwhile."""

import json
import os
import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from kp_batch.errors import BusyError, WarehouseError
from kp_batch.storage.faults import ConflictError
from kp_batch.storage.store import Store

LEASE = "kp.lock"  # the object, by which an archive's reader knows a warehouse, too
_PROBE = "kp.probe-"
_BEAT_S = 20.0
_DEAD_S = 90.0  # without a beat; by the store's own clock


@dataclass
class Lease:
    """Held until it is given back, or somebody takes it from a holder that seems dead."""

    store: Store
    who: Mapping[str, object]
    etag: str
    beats: int = 0  # no two writes are the same
    is_lost: bool = False
    _beating: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Make sure that it is still held; it is renewed.

        Raises:
            BusyError: another writer has it by now.
        """
        self.beat()
        if self.is_lost:
            raise BusyError(
                f"{self.store.url} was taken over by another writer, since this one was not heard "
                "of for too long; what is published is whole; run again"
            )

    def beat(self) -> None:
        """Renew it; that the store cannot be asked now is no fault yet."""
        with self._beating:
            self.beats += 1
            text = json.dumps({**self.who, "beats": self.beats})
            with suppress(OSError):
                try:
                    self.etag = self.store.write(LEASE, text.encode(), instead_of=self.etag)
                except (ConflictError, FileNotFoundError):
                    # It may be this one's own, of a beat whose answer was lost.
                    holder, self.etag, _ = _holder(self.store, 0)
                    self.is_lost = any(holder.get(name) != each for name, each in self.who.items())


@contextmanager
def leased(store: Store, copy_id: str) -> Generator[Lease]:
    """Hold the lease of a warehouse in a bucket.

    Args:
        store: of the warehouse.
        copy_id: of this machine's copy, on which only this process works.

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
    lease = Lease(store, who, _taken(store, who))
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(_BEAT_S):
            lease.beat()

    beating = threading.Thread(target=renew, name="kp-lease", daemon=True)
    beating.start()
    try:
        yield lease
    finally:
        ended.set()
        beating.join()
        with suppress(ConflictError, OSError):  # it dies by itself, then
            store.write(LEASE, b"{}", instead_of=lease.etag)


def _taken(store: Store, who: Mapping[str, object]) -> str:
    """Take the lease; returns its ETag."""
    now_ns = _probed(store, f"{_PROBE}{who['copy']}")
    holder, etag, age_s = _holder(store, now_ns)
    if holder.get("copy") in (None, who["copy"]) or age_s > _DEAD_S:
        with suppress(ConflictError):  # another one was faster
            return store.write(LEASE, json.dumps(who).encode(), instead_of=etag, new=not etag)
        holder, _, age_s = _holder(store, now_ns)
    raise BusyError(
        f"another run is writing to {store.url} (process {holder.get('pid')} on "
        f"{holder.get('host')} since {holder.get('since')}, last heard of {max(age_s, 0):.0f} s "
        "ago); wait for its end with --wait, or run later"
    )


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


def _probed(store: Store, name: str) -> int:
    """Try on an object of this machine whether the store keeps conditions; returns its time, ns."""
    etag = store.write(name, b"1")  # instead of what a killed one left
    try:
        for other in ("", uuid4().hex):
            with suppress(ConflictError):
                store.write(name, b"2", instead_of=other, new=not other)
                raise WarehouseError(
                    f"{store.url} does not keep the conditions of a write (If-Match), so that two "
                    "writers could overwrite each other; choose another store"
                )
        found = store.look(name)
    finally:
        store.delete([name])
    if found is None or not etag:
        raise WarehouseError(f"{store.url} tells no ETag of what it has; choose another store")
    return found.mtime_ns
