"""Shares a warehouse in a bucket with other machines: one writer at a time, and who only reads."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from kp_batch.errors import BusyError
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lease import Lease, leased
from kp_batch.warehouse.lock import locked
from kp_batch.warehouse.places import url_of
from kp_batch.warehouse.working_copy import WorkingCopy

_OPEN: dict[Path, tuple[WorkingCopy, Lease]] = {}  # that this process writes to, by folder


@contextmanager
def shared(folder: Path) -> Generator[None]:
    """Be the only writer of a warehouse's bucket, if it stands in one; the folder's lock is held.

    Raises:
        BusyError: another process is writing.
        WarehouseError: the bucket cannot be a warehouse's.
        OSError: it cannot be read or written.
    """
    copy = WorkingCopy.of(folder)
    if copy is None:
        yield
        return
    with leased(copy.store, copy.files.copy_id) as lease:
        with _pulling(folder):
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
        BusyError: another writer is there; nothing of this one is published.
        OSError: it cannot be written.
    """
    text = Layout(folder).manifest
    if folder in _OPEN and not (text.exists() and text.read_text("utf-8") == manifest):
        copy, lease = _OPEN[folder]
        copy.publish(manifest, lease)


@contextmanager
def removing(folder: Path) -> Generator[None]:
    """Let what is removed from a warehouse meanwhile be deleted from its bucket as well.

    Nothing else ever is: what a disk or a user has lost comes back from there.
    """
    if folder not in _OPEN:
        yield
        return
    copy, _ = _OPEN[folder]
    with copy.removing():
        yield


def keeps_versions(folder: Path) -> bool:
    """Whether the warehouse stands in a bucket that keeps older versions of its objects."""
    copy = WorkingCopy.of(folder)
    found = copy.store.look(copy.files.manifest) if copy else None
    return bool(found and found.version)


def refresh(folder: Path) -> None:
    """Make a working copy equal to its bucket, before it is read.

    A writer on this machine, if there is one, has done so, and what it makes is not there yet.

    Raises:
        OSError: the bucket cannot be read.
    """
    if url_of(folder) is None:
        return
    with _pulling(folder), suppress(BusyError):
        with locked(folder, wait=False) as is_first:
            pass  # no other writer, and a new one waits for us
        if is_first and (copy := WorkingCopy.of(folder)):
            copy.pull()


def _pulling(folder: Path) -> FileLock:
    """The lock of who makes a working copy equal to its bucket, which takes a while."""
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "pull.lock", is_singleton=True, thread_local=False)
