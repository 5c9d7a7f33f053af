"""Shares a warehouse in a bucket with other machines: one writer at a time, and who only reads."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from filelock import FileLock

from kp_batch.away import removals
from kp_batch.errors import BusyError
from kp_batch.storage.store import store_at
from kp_batch.warehouse.copied_files import CopiedFiles
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lease import Lease, leased
from kp_batch.warehouse.lock import locked
from kp_batch.warehouse.places import folder_of, make_folder_of, url_of
from kp_batch.warehouse.working_copy import WorkingCopy

_OPEN: dict[Path, tuple[WorkingCopy, Lease]] = {}  # that this process writes to, by folder


@contextmanager
def shared(folder: Path) -> Generator[None]:
    """Be the only writer of a warehouse's bucket, if it stands in one; both locks here are held.

    Where the work within ends well, what it has made is stored, and what it has removed by
    `away.remove` is deleted.

    Raises:
        BusyError: another process is writing.
        WarehouseError: the bucket cannot be a warehouse's.
        OSError: it cannot be read or written.
    """
    copy = WorkingCopy.of(folder)
    if copy is None:
        yield
        return
    with leased(copy.store, copy.files.copy_id) as lease, removals() as removed:
        copy.pull()
        _OPEN[folder] = copy, lease
        try:
            yield
            copy.finish(removed, lease)
        finally:
            del _OPEN[folder]


@contextmanager
def alone(url: str, archive: str) -> Generator[Lease]:
    """Be the only one who writes below a URL of an archive, where no warehouse stands.

    Raises:
        BusyError: another process is writing.
        WarehouseError: nothing can be written there.
        OSError: it cannot be read or written.
    """
    folder = Path(folder_of(url))
    with locked(folder, wait=False, archive=archive):
        files = CopiedFiles.of(folder)
        files.keep()  # by its id, the lease of one that was killed here is known
        with leased(store_at(url), files.copy_id, archive) as lease:
            yield lease


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


def is_in_doubt(folder: Path) -> bool:
    """Whether the bucket has, or may have, a manifest of this writer that the copy here lacks."""
    if folder not in _OPEN:
        return False
    text, (copy, _) = Layout(folder).manifest, _OPEN[folder]
    return bool(copy.tried - {text.read_bytes() if text.exists() else b""})


def keeps_versions(folder: Path) -> bool:
    """Whether the warehouse stands in a bucket that keeps older versions of its objects."""
    copy = WorkingCopy.of(folder)
    found = copy.store.look(copy.files.manifest) if copy else None
    return bool(found and found.version)


def refresh(folder: Path) -> None:
    """Make a working copy equal to its bucket, before it is read.

    A writer on this machine, if there is one, has done so before it began.

    Raises:
        OSError: the bucket cannot be read.
    """
    if not is_copy(folder):
        return
    with pulling(folder), suppress(BusyError):
        with locked(folder, wait=False) as is_first:
            pass  # no other writer, and a new one waits for us
        if is_first and (copy := WorkingCopy.of(folder)):
            copy.pull()


def is_copy(folder: Path) -> bool:
    """Whether a warehouse's folder is the working copy of a bucket."""
    return url_of(folder) is not None


def pulling(folder: Path) -> AbstractContextManager[object]:
    """The lock of who makes a working copy equal to its bucket; it is taken before all others.

    Threads exclude each other, too, and who holds it does not take it again.

    A reader waits for it, so who holds it must not wait for another writer.
    """
    if not is_copy(folder):
        return nullcontext()
    make_folder_of(folder)
    return FileLock(folder / "pull.lock", thread_local=False)
