"""The working copy of a warehouse that stands in a bucket: a folder of this machine, used as one.

Before work begins, the copy is made equal to the bucket, except that vectors stay there until they
are read. What a writer made goes into the bucket before the manifest does, which is replaced only
if it is still the one that the work began from. What the writer removed is deleted after that.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from kp_batch.away import FETCHED_NS, is_note, leave_away, note_of
from kp_batch.contracts import TABLES
from kp_batch.errors import BusyError, WarehouseError
from kp_batch.storage.faults import ConflictError
from kp_batch.storage.store import Object, Store, store_at
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lease import LEASE, PROBE, Lease
from kp_batch.warehouse.places import url_of
from kp_batch.whole_files import HALF_WRITTEN, whole

_AT_ONCE = 16  # objects that are on their way
_LOG = "/_delta_log/"

Known = list[str | int]  # of an object: its ETag, and its file's size and time
T = TypeVar("T")


@dataclass
class WorkingCopy:
    """A copy and what is known of its bucket; kept in `bucket.json`."""

    folder: Path
    store: Store
    copy_id: str = field(default_factory=lambda: uuid4().hex)
    known: dict[str, Known] = field(default_factory=dict[str, Known])  # by the objects' paths
    was_published: bool = False
    etag: str = ""  # of the manifest that work began from, or that this writer has published
    tried: set[bytes] = field(default_factory=set[bytes])  # manifests of this writer

    @classmethod
    def of(cls, folder: Path) -> "WorkingCopy | None":
        """The working copy in a folder; None if it is no copy of a bucket."""
        url = url_of(folder)
        if url is None:
            return None
        copy = cls(folder, store_at(url))
        with suppress(OSError, ValueError, TypeError):
            told = json.loads(copy._state.read_text("utf-8"))
            copy.copy_id, copy.known, copy.was_published = told
        return copy

    @property
    def _state(self) -> Path:
        return self.folder / "bucket.json"

    @property
    def _manifest(self) -> str:
        return Layout(self.folder).manifest.name

    def pull(self) -> None:
        """Make the copy equal to the bucket, but for vectors that nobody has stored there yet.

        Raises:
            WarehouseError: the bucket is empty, and was not.
            OSError: it cannot be read.
        """
        published = self.store.look(self._manifest)
        if published is None and self.was_published:
            raise WarehouseError(
                f"what was published in {self.store.url} is gone from there; {self.folder} has a "
                "copy of it: to publish that again, copy it back; to begin anew, remove it"
            )
        self.was_published = published is not None
        self.etag = published.etag if published else ""
        if published and self._has(published) and all(map(self._is_whole, self.known)):
            return
        found = {each.path: each for each in self.store.objects() if _is_shared(each.path)}
        self._remove(found.keys())
        try:
            _at_once(self._fetch, [each for each in found.values() if not self._has(each)])
        except FileNotFoundError:  # it was deleted meanwhile
            self.pull()
        self._keep()
        # What was published meanwhile names files that the list had not.
        if self.etag != (again.etag if (again := self.store.look(self._manifest)) else ""):
            self.pull()

    def publish(self, manifest: str, lease: Lease) -> None:
        """Store what is new, then the manifest: from then on, everyone sees it.

        Raises:
            BusyError: another writer has published meanwhile; nothing of this one is.
            OSError: it cannot be written.
        """
        self.known.pop(self._manifest, None)  # until its file is replaced, see `finish`
        self._store_new()
        self._keep()
        lease.check()
        self.tried.add(manifest.encode())
        try:
            self._replace_manifest(manifest)
        except ConflictError as error:
            there, self.etag = self.store.read(self._manifest)
            if there not in self.tried:
                raise _overtaken(self.store) from error
            self._replace_manifest(manifest)  # it was this writer's own, whose answer was lost
        self.was_published = True

    def _replace_manifest(self, manifest: str) -> None:
        self.etag = self.store.write(
            self._manifest, manifest.encode(), instead_of=self.etag, new=not self.etag
        )

    def finish(self, lease: Lease) -> None:
        """Store what is new, and delete what this writer has removed here.

        Raises:
            OSError: the bucket cannot be written.
        """
        self._store_new()
        if self.etag:
            self._note(self._manifest, self.etag)
        gone = [path for path in self.known if not self._stands(path)]
        lease.check()
        marker = Layout(self.folder).forgetting.name
        for paths in ([each for each in gone if each != marker], [*{marker}.intersection(gone)]):
            if paths:  # the mark of unfinished work goes last
                self.store.delete(paths)
        self.known = {path: each for path, each in self.known.items() if path not in gone}
        self._keep()

    def _store_new(self) -> None:
        """Store what the bucket has not: the tables' logs after the files that they name."""
        new = [path for path in self._files() if path != self._manifest and self._is_new(path)]
        logs = [path for path in new if _LOG in path]
        _at_once(self._send, [path for path in new if _LOG not in path])
        _at_once(self._send, logs)

    def _send(self, path: str) -> None:
        # A log's entry is never replaced: it is another writer's.
        is_entry = _LOG in path and path.endswith(".json")
        try:
            etag = self.store.write(path, self.folder / path, new=is_entry)
        except ConflictError as error:
            raise _overtaken(self.store) from error
        self._note(path, etag)

    def _fetch(self, found: Object) -> None:
        file = self.folder / found.path
        if _stays_away(found.path):
            leave_away(file, self.store.url, found.path)
            self.known[found.path] = [found.etag, found.size, FETCHED_NS]
            return
        self.store.download(found.path, file)
        self._note(found.path, found.etag)

    def _note(self, path: str, etag: str) -> None:
        """Note that a file is as the bucket has it."""
        status = (self.folder / path).stat()
        self.known[path] = [etag, status.st_size, status.st_mtime_ns]

    def _has(self, found: Object) -> bool:
        """Whether the copy has an object as it is now."""
        known = self.known.get(found.path)
        return known is not None and known[0] == found.etag and self._is_whole(found.path)

    def _is_whole(self, path: str) -> bool:
        """Whether a known object stands here, or a note in its place."""
        return self._stands(path) and not self._is_new(path)

    def _stands(self, path: str) -> bool:
        file = self.folder / path
        return file.exists() or note_of(file).exists()

    def _is_new(self, path: str) -> bool:
        """Whether a file is not as the bucket has it."""
        try:
            status = (self.folder / path).stat()
        except FileNotFoundError:  # it is away
            return False
        known = self.known.get(path)
        return known is None or known[1:] != [status.st_size, status.st_mtime_ns]

    def _files(self) -> Iterator[str]:
        """The paths of the files that belong into the bucket."""
        layout = Layout(self.folder)
        for top in (*map(layout.table, TABLES), layout.all_vectors):
            for path in top.rglob("*"):
                if path.is_file() and not (is_note(path) or path.suffix == HALF_WRITTEN):
                    yield path.relative_to(self.folder).as_posix()
        for path in (layout.manifest, layout.report, layout.forgetting):
            if path.exists():
                yield path.name

    def _remove(self, found: Collection[str]) -> None:
        """Remove what the bucket has not; only vectors that it never had are work to be kept."""
        unknown = (path for path in self._files() if not _is_of_vectors(path))
        for path in {*self.known, *unknown}.difference(found):
            for each in (self.folder / path, note_of(self.folder / path)):
                each.unlink(missing_ok=True)
            self.known.pop(path, None)

    def _keep(self) -> None:
        with whole(self._state) as written:
            state = [self.copy_id, self.known, self.was_published]
            written.write_text(json.dumps(state), "utf-8")


def _at_once(work: Callable[[T], None], parts: Sequence[T]) -> None:
    """Do some work for many objects at once; the first error is raised when all have ended."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(work, part) for part in parts]:
            done.result()


def _is_shared(path: str) -> bool:
    return path != LEASE and not path.startswith(PROBE)


def _is_of_vectors(path: str) -> bool:
    return path.startswith("vectors/")


def _stays_away(path: str) -> bool:
    return _is_of_vectors(path) and path.endswith(".vectors.npy")


def _overtaken(store: Store) -> BusyError:
    return BusyError(
        f"another writer published in {store.url} at the same time; nothing of this one was "
        "published; run again"
    )
