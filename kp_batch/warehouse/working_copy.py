"""The working copy of a warehouse that stands in a bucket: a folder of this machine, used as one.

Before work begins, the copy is made equal to the bucket, except that vectors stay there until they
are read. What a writer made goes into the bucket before the manifest does, which is replaced only
if it is still the one that the work began from. What the writer removed is deleted after that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from kp_batch.errors import BusyError, StorageError, WarehouseError, is_passing
from kp_batch.storage.at_once import at_once
from kp_batch.storage.faults import ConflictError
from kp_batch.storage.objects import Object
from kp_batch.storage.store import Store, store_at
from kp_batch.warehouse.copied_files import LAST_CHECKPOINT, LOG, CopiedFiles, is_shared
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lease import Lease
from kp_batch.warehouse.places import url_of

_TRIES = 5  # to see the bucket at rest


@dataclass
class WorkingCopy:
    """A copy, its bucket, and what its writer has done."""

    files: CopiedFiles
    store: Store
    etag: str = ""  # of the manifest that work began from, or that this writer has published
    tried: set[bytes] = field(default_factory=set[bytes])  # manifests of this writer

    @classmethod
    def of(cls, folder: Path) -> "WorkingCopy | None":
        """The working copy in a folder; None if it is no copy of a bucket."""
        url = url_of(folder)
        return cls(CopiedFiles.of(folder), store_at(url)) if url else None

    def pull(self) -> None:
        """Make the copy equal to the bucket, but for vectors that nobody has stored there yet.

        Raises:
            WarehouseError: the bucket is empty, and was not.
            StorageError: others change it all the time.
            OSError: it cannot be read.
        """
        for left in reversed(range(_TRIES)):
            try:
                if self._pulled():
                    return
            except OSError as error:  # what was fetched until then is kept
                if not (left and is_passing(error)):
                    raise
        raise StorageError(f"{self.store.url} is changed by others all the time; try again later")

    def _pulled(self) -> bool:
        """Make the copy equal to a list of the bucket; False if that has changed meanwhile."""
        files, manifest = self.files, self.files.manifest
        found = {each.path: each for each in self.store.objects() if is_shared(each.path)}
        published = found.pop(manifest, None)
        if published is None and files.was_published:
            raise WarehouseError(
                f"what was published in {self.store.url} is gone from there: restore it, or, to "
                f"begin anew, remove its working copy {files.folder}"
            )
        if not self._fetched([each for each in found.values() if not files.has(each)]):
            return False
        content, now = self._manifest()
        self.etag = now.etag if now else ""
        if self.etag != (published.etag if published else ""):
            return False
        known = files.known.get(manifest)
        same = known is not None and known[0] == self.etag
        if now and not files.has(now):
            files.place(now, content)
        files.was_published = now is not None
        files.leave_only({*found, *([manifest] if now else [])}, own_vectors=same or not now)
        files.keep()
        return True

    def _manifest(self) -> tuple[bytes, Object | None]:
        try:
            return self.store.read(self.files.manifest)
        except FileNotFoundError:
            return b"", None

    def _fetched(self, missing: Sequence[Object]) -> bool:
        """Copy objects, the logs of tables last; False if one was deleted since it was listed."""
        parts = [[each for each in missing if (LOG in each.path) == logs] for logs in (False, True)]
        try:
            for part in parts:
                at_once(lambda each: self.files.fetch(self.store, each), part)
        except FileNotFoundError:
            return False
        finally:
            self.files.keep()
        return True

    def publish(self, manifest: str, lease: Lease) -> None:
        """Store what is new, then the manifest: from then on, everyone sees it.

        Raises:
            BusyError: another writer is there; nothing of this one is published.
            OSError: it cannot be written.
        """
        self._store_new(lease)
        lease.check()
        self.tried.add(manifest.encode())
        try:
            self._replace_manifest(manifest, self.etag)
        except ConflictError as error:
            there, found = self.store.read(self.files.manifest)
            if there not in self.tried:
                raise _overtaken(self.store) from error
            self._replace_manifest(manifest, found.etag)  # its own, whose answer was lost
        self.files.was_published = True

    def _replace_manifest(self, manifest: str, etag: str) -> None:
        content = manifest.encode()
        self.etag = self.store.write(self.files.manifest, content, instead_of=etag, new=not etag)

    def finish(self, removed: Iterable[Path], lease: Lease) -> None:
        """Store what is new, and delete what this writer has removed here.

        Args:
            removed: the files, or notes.
            lease: held.

        Raises:
            BusyError: another writer is there; what was published before is whole.
            OSError: the bucket cannot be written.
        """
        self._store_new(lease)
        if self.etag and self.files.stands(self.files.manifest):
            self.files.note(self.files.manifest, self.etag)
        gone = self.files.gone(removed)
        marker = Layout(self.files.folder).forgetting.name
        for is_marker in (False, True):  # the mark of unfinished work goes last
            lease.check()
            self.store.delete([path for path in gone if (path == marker) == is_marker])
        for path in gone:
            self.files.known.pop(path, None)
        self.files.keep()

    def _store_new(self, lease: Lease) -> None:
        """Store what the bucket has not: the logs of tables after the files that they name."""
        new = self.files.new()
        # A log with a gap is none: its entries go one after another.
        logs = sorted((path for path in new if LOG in path), key=_in_log)
        tables = [list(each) for _, each in groupby(logs, key=lambda path: path.partition("/")[0])]
        try:
            at_once(lambda path: self._send([path], lease), [x for x in new if LOG not in x])
            at_once(lambda paths: self._send(paths, lease), tables)
        finally:
            self.files.keep()

    def _send(self, paths: Iterable[str], lease: Lease) -> None:
        for path in paths:
            lease.check()
            self._send_file(path)

    def _send_file(self, path: str) -> None:
        # A log's entry is never replaced: it is another writer's.
        is_entry = LOG in path and not path.endswith(LAST_CHECKPOINT)
        try:
            etag = self.store.write(path, self.files.folder / path, new=is_entry)
        except ConflictError as error:
            raise _overtaken(self.store) from error
        self.files.note(path, etag)


def _in_log(path: str) -> tuple[str, int, str]:
    """Where a file of a log comes: by table, entries before checkpoints, these before the last."""
    kind = 0 if path.endswith(".json") else 2 if path.endswith(LAST_CHECKPOINT) else 1
    return path.partition("/")[0], kind, path


def _overtaken(store: Store) -> BusyError:
    return BusyError(
        f"another writer stored something in {store.url} at the same time; nothing of this one was "
        "published; run again"
    )
