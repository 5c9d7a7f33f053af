"""Shares a warehouse in a bucket with other machines: one writer at a time, and who only reads."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from kp_batch.errors import BusyError
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lease import Lease, leased
from kp_batch.warehouse.lock import locked
from kp_batch.warehouse.working_copy import WorkingCopy

_OPEN: dict[Path, tuple[WorkingCopy, Lease]] = {}  # that this process writes to, by folder


@contextmanager
def shared(folder: Path, *, wait: bool) -> Generator[None]:
    """Be the only writer of a warehouse's bucket, if it stands in one; the folder's lock is held.

    Raises:
        BusyError: another process is writing, and `wait` is false.
        WarehouseError: the bucket cannot be a warehouse's.
        OSError: it cannot be read or written.
    """
    copy = WorkingCopy.of(folder)
    if copy is None:
        yield
        return
    with leased(copy.store, copy.copy_id, wait=wait) as lease:
        copy.pull()
        _OPEN[folder] = copy, lease
        try:
            yield
            copy.finish(lease)
        finally:
            del _OPEN[folder]


def publish_in_bucket(folder: Path, manifest: str) -> None:
    """Publish in the bucket first, if the warehouse stands in one.

    Raises:
        BusyError: another writer has published meanwhile; nothing of this one is.
        OSError: it cannot be written.
    """
    text = Layout(folder).manifest
    if folder in _OPEN and not (text.exists() and text.read_text("utf-8") == manifest):
        copy, lease = _OPEN[folder]
        copy.publish(manifest, lease)


def keeps_versions(folder: Path) -> bool:
    """Whether the warehouse stands in a bucket that keeps older versions of its objects."""
    copy = WorkingCopy.of(folder)
    found = copy.store.look(Layout(folder).manifest.name) if copy else None
    return bool(found and found.version)


def refresh(folder: Path) -> None:
    """Make a working copy equal to its bucket, before it is read.

    A writer on this machine, if there is one, has done so.

    Raises:
        OSError: the bucket cannot be read.
    """
    copy = WorkingCopy.of(folder)
    if copy is None:
        return
    with suppress(BusyError), locked(folder, wait=False):
        copy.pull()
