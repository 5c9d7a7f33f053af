"""The copy of a warehouse that stands in a bucket: a folder of this machine, used as any other.

Before work begins, the copy is made equal to the bucket, except that vectors stay there until they
are read. What a writer made is stored before the manifest, which is replaced only if it is still
the one that the work began from. After that, what the writer removed here is deleted there.

Several writers may be at work, though a lease asks them to take turns. That harms nobody:

- *One publishes.* Each publication has an id of its own, so a manifest never comes back: where it
  is as the copy has it, nothing was published since. A writer that finds another one instead knows
  its own by that id, if the answer to a write was lost.
- *None stores over what another one needs.* Data files bear names that nobody else gives. A table's
  log is one sequence, of which each entry is created once: who finds the next number taken was
  overtaken. All tables' logs go in one order, so one of two writers gets through. An entry that
  was never published stays, and whoever writes next restores the published version after it. What
  else is replaced, such as the page, is replaced only as the copy knows it; but `_last_checkpoint`
  by any writer, as logs are never deleted, so that what any of them names is there. Of vectors the
  name says what they are: those of two writers are the same.
- *None deletes what another one needs.* Only who has published, and says so, deletes anything but
  the page, nothing that its own manifest names, and only while that is the published one. A later
  manifest names those files, and new ones that this copy does not know. Who was at work from the
  same manifest as this one can no longer publish. Vectors and the page may be lost: they are made
  again.
- *A copy is whole.* All that a manifest names was stored before it, and is deleted only after a
  later one; so what was listed while the manifest stayed the same is complete.
"""

import shutil
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from kp_batch.errors import BusyError, StorageError, WarehouseError, is_passing
from kp_batch.files import HALF_WRITTEN, atomic_write, files_below
from kp_batch.storage.store import AT_ONCE, ConflictError, Object, Store, run_parallel, store_at
from kp_batch.warehouse.bucket.location import (
    FETCHED_NS,
    Record,
    is_lazy,
    is_of_vectors,
    make_folder_of,
    url_of,
)
from kp_batch.warehouse.layout import TABLE_NAMES, Layout
from kp_batch.warehouse.lock import leased, locked

_ROOT = Layout(Path())
_MANIFEST, _MARKER = _ROOT.manifest.name, _ROOT.forgetting.name
_PAGE = _ROOT.report.name
_SINGLE = (_MANIFEST, _PAGE, _MARKER)
_FOLDERS = (*TABLE_NAMES, _ROOT.all_vectors.name)
_LOG, _LAST_CHECKPOINT = "/_delta_log/", "_last_checkpoint"
_ENDINGS = (".parquet", ".json", f"/{_LAST_CHECKPOINT}")

_TRIES = 5  # to see the bucket at rest
_FETCHED_S = 3_600  # until then, a reader may be fetching a vector


@dataclass
class Mirror:
    """A copy, its bucket, and what its writer has done."""

    record: Record
    store: Store
    check: Callable[[], None] = lambda: None  # raises where another writer took over
    etag: str = ""  # of the manifest that work began from, or that this writer has published
    tried: set[bytes] = field(default_factory=set[bytes])  # manifests of this writer
    keeps_here: bool = False  # whether nothing is stored: see `keep_here`
    removes: bool = False  # whether files that are gone from here were removed: see `may_remove`

    @classmethod
    def of(cls, folder: Path) -> "Mirror | None":
        """The copy in a folder; None if it is no copy of a bucket."""
        url = url_of(folder)
        return cls(Record.of(folder), store_at(url)) if url else None

    @property
    def folder(self) -> Path:
        """The copy's."""
        return self.record.folder

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
        """Make the copy equal to a list of the bucket; False if others published meanwhile."""
        record = self.record
        content, now = self._manifest()
        if now is None and record.was_published:
            raise WarehouseError(
                f"what was published in {self.store.url} is gone from there: restore it, or, to "
                f"begin anew, remove its working copy {self.folder}"
            )
        # A list comes in pages, of which each may be of another moment.
        found = {each.path: each for each in self.store.objects() if is_shared(each.path)}
        found.pop(_MANIFEST, None)
        if not self._fetched([each for each in found.values() if not record.has(each)]):
            return False
        then, self.etag = self.store.head(_MANIFEST), now.etag if now else ""
        if self.etag != (then.etag if then else ""):
            return False
        is_same = record.etag_of(_MANIFEST) == self.etag
        if now and not record.has(now):
            self._keep(content, now)
        record.was_published = now is not None
        self._prune_to({*found, *([_MANIFEST] if now else [])}, own_vectors=is_same)
        record.keep()
        return True

    def _manifest(self) -> tuple[bytes, Object | None]:
        try:
            return self.store.read(_MANIFEST)
        except FileNotFoundError:
            return b"", None

    def _fetched(self, missing: Sequence[Object]) -> bool:
        """Copy objects, the logs of tables last; False if one was deleted since it was listed."""
        try:
            for is_log in (False, True):
                run_parallel(
                    self._fetch, [each for each in missing if _is_log(each.path) == is_log]
                )
        except FileNotFoundError:
            return False
        finally:
            self.record.keep()
        return True

    def _fetch(self, found: Object) -> None:
        if is_lazy(found.path):
            self.record.mark_remote(found)
            return
        if found.path in _SINGLE or found.path.endswith(_LAST_CHECKPOINT):
            # Another writer may have replaced it since it was listed.
            self._keep(*self.store.read(found.path))
            return
        # So that a vector is never taken for work of this machine.
        mtime_ns = FETCHED_NS if is_of_vectors(found.path) else None
        self.store.download(found.path, self.folder / found.path, mtime_ns)
        self.record.note(found.path, found.etag)

    def _keep(self, content: bytes, found: Object) -> None:
        (self.folder / found.path).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.folder / found.path) as written:
            written.write_bytes(content)
        self.record.note(found.path, found.etag)

    def _prune_to(self, found: Collection[str], *, own_vectors: bool) -> None:
        """Remove the files that the bucket has not, and what killed commands left here.

        Args:
            found: what the bucket has.
            own_vectors: whether those stay that this machine has made, and never stored.
        """
        for path in {*self.record.known, *self._files()}.difference(found):
            if not (own_vectors and path not in self.record.known and self._is_made_here(path)):
                (self.folder / path).unlink(missing_ok=True)
                self.record.known.pop(path, None)
        # What is half written may hold what was forgotten meanwhile.
        shutil.rmtree(Layout(self.folder).all_staging, ignore_errors=True)
        for file in (file for top in _FOLDERS for file in files_below(self.folder / top)):
            with suppress(FileNotFoundError):
                is_old = file.stat().st_mtime < time.time() - _FETCHED_S
                if is_old and file.suffix == HALF_WRITTEN:
                    file.unlink()

    def _is_made_here(self, path: str) -> bool:
        with suppress(FileNotFoundError):
            mtime_ns = (self.folder / path).stat().st_mtime_ns
            return is_of_vectors(path) and mtime_ns != FETCHED_NS
        return False

    def _files(self) -> Iterator[str]:
        """The paths of the files here that belong into the bucket."""
        for file in (file for top in _FOLDERS for file in files_below(self.folder / top)):
            path = file.relative_to(self.folder).as_posix()
            if is_shared(path):
                yield path
        yield from (name for name in _SINGLE if (self.folder / name).exists())

    def publish(self, manifest: str) -> None:
        """Store what is new, then the manifest: from then on, everyone sees it.

        Raises:
            BusyError: another writer is there; nothing of this one is published.
            OSError: it cannot be written.
        """
        self._store_new()
        content = manifest.encode()
        self.tried.add(content)
        with self._unless_overtaken():
            try:
                self._replace_manifest(content, self.etag)
            except ConflictError:
                there, found = self.store.read(_MANIFEST)
                if there not in self.tried:
                    raise
                self._replace_manifest(content, found.etag)  # its own, whose answer was lost
        self.record.was_published = True

    def _replace_manifest(self, content: bytes, etag: str) -> None:
        self.etag = self.store.write(_MANIFEST, content, instead_of=etag)

    def finish(self) -> None:
        """Store what is new, and delete what this writer has removed here.

        Raises:
            BusyError: another writer is there; what was published before is whole.
            StorageError: a file is lost from here that is needed; nothing was deleted.
            OSError: the bucket cannot be written.
        """
        if self.keeps_here:
            return
        self._store_new()
        if self.etag and self.record.is_present(_MANIFEST):
            self.record.note(_MANIFEST, self.etag)
        gone = self._removed()
        marks = [path for path in gone if path == _MARKER]
        files = [path for path in gone if path != _MARKER]
        for paths in (files, marks):  # the mark of unfinished work goes last
            for first in range(0, len(paths), AT_ONCE):
                self._delete(paths[first : first + AT_ONCE])
        for path in gone:
            self.record.known.pop(path, None)
        self.record.keep()

    def _delete(self, paths: Sequence[str]) -> None:
        """Delete objects by one request, unless somebody has published since this writer has."""
        self.check()
        found = self.store.head(_MANIFEST)
        if self.etag != (found.etag if found else ""):
            raise BusyError(
                f"another writer published in {self.store.url} meanwhile; nothing more was "
                "deleted; give the same command again"
            )
        self.store.delete(paths)

    def _removed(self) -> list[str]:
        """The objects whose files were removed here: of a run, the page alone.

        What else is gone was lost by a disk or a user. Where that is needed, who knows what else
        is.
        """
        asked = self.record.known if self.removes else {_PAGE} & self.record.known.keys()
        gone = [path for path in asked if not self.record.is_present(path)]
        lost = {path for path in gone if _is_log(path) or path == _MANIFEST}
        if lost := lost or self._named(gone).intersection(gone):
            raise StorageError(
                f"{min(lost)}, which is needed, is lost from {self.folder}, the copy of "
                f"{self.store.url}; nothing was deleted there; give the same command again"
            )
        return sorted(gone)

    def _named(self, paths: Sequence[str]) -> set[str]:
        """What the manifest names of the tables that have some paths."""
        from kp_batch.warehouse.delta import files_at  # imports delta-rs, which takes a while
        from kp_batch.warehouse.manifest import read_manifest

        manifest, named = read_manifest(self.folder), set[str]()
        versions = manifest.tables if manifest else {}
        for name in {path.partition("/")[0] for path in paths} & versions.keys():
            files = files_at(Layout(self.folder).table(name), {versions[name]})
            named |= {file.relative_to(self.folder).as_posix() for file in files}
        return named

    def _store_new(self) -> None:
        """Store what the bucket has not: the logs of tables after the files that they name."""
        new = [path for path in self._files() if path != _MANIFEST and self.record.is_new(path)]
        try:
            run_parallel(self._send, [path for path in new if not _is_log(path)])
            for path in sorted(filter(_is_log, new), key=_in_logs):
                self._send(path)
        finally:
            self.record.keep()

    def _send(self, path: str) -> None:
        self.check()
        old = self.record.etag_of(path) if path in _SINGLE else None
        if _is_log(path) and not path.endswith(_LAST_CHECKPOINT):
            old = ""
        with self._unless_overtaken():
            etag = self.store.write(path, self.folder / path, instead_of=old)
        self.record.note(path, etag)

    @contextmanager
    def _unless_overtaken(self) -> Generator[None]:
        try:
            yield
        except ConflictError as error:
            raise BusyError(
                f"another writer stored something in {self.store.url} at the same time; what is "
                "published is whole; run again"
            ) from error


_OPEN: dict[Path, Mirror] = {}  # that this process writes to, by folder


@contextmanager
def bucket_session(folder: Path) -> Generator[None]:
    """Write to a warehouse's bucket, if it stands in one; both locks here are held.

    Where the work within ends well, what it has made is stored, and what it has removed is deleted.

    Raises:
        BusyError: another process is writing.
        WarehouseError: the bucket cannot be a warehouse's.
        OSError: it cannot be read or written.
    """
    mirror = Mirror.of(folder)
    if mirror is None:
        yield
        return
    with leased(mirror.store, mirror.record.copy_id) as lease:
        mirror.check = lease.check
        mirror.pull()
        _OPEN[folder] = mirror
        try:
            yield
            mirror.finish()
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
        _OPEN[folder].publish(manifest)


def keep_here(folder: Path) -> None:
    """Store nothing in the bucket when this writer ends: what it makes stays in the copy here."""
    if folder in _OPEN:
        _OPEN[folder].keeps_here = True


def may_remove(folder: Path) -> None:
    """Let a bucket lose what is gone from its copy when this writer ends.

    Only once a manifest is published that does without what will be removed.
    """
    if folder in _OPEN:
        _OPEN[folder].removes = True


def is_in_doubt(folder: Path) -> bool:
    """Whether the bucket has, or may have, a manifest of this writer that the copy here lacks."""
    if folder not in _OPEN:
        return False
    text = Layout(folder).manifest
    return bool(_OPEN[folder].tried - {text.read_bytes() if text.exists() else b""})


def keeps_versions(folder: Path) -> bool:
    """Whether the warehouse stands in a bucket that keeps older versions of its objects."""
    mirror = Mirror.of(folder)
    found = mirror.store.head(_MANIFEST) if mirror else None
    return bool(found and found.version)


def refresh(folder: Path) -> None:
    """Make a copy equal to its bucket, before it is read.

    A writer on this machine, if there is one, has done so before it began.

    Raises:
        OSError: the bucket cannot be read.
    """
    if not url_of(folder):
        return
    with sync_lock(folder), suppress(BusyError):
        with locked(folder, wait=False) as is_first:
            pass  # no other writer, and a new one waits for us
        if is_first and (mirror := Mirror.of(folder)):
            mirror.pull()


def sync_lock(folder: Path) -> AbstractContextManager[object]:
    """The lock of who makes a copy equal to its bucket; it is taken before all others.

    Threads exclude each other, too, and who holds it does not take it again.

    A reader waits for it, so who holds it must not wait for another writer.
    """
    if not url_of(folder):
        return nullcontext()
    make_folder_of(folder)
    return FileLock(folder / "pull.lock", thread_local=False)


def is_shared(path: str) -> bool:
    """Whether an object is a file of a warehouse; what else stands below its URL is left alone."""
    top, *below = path.split("/")
    in_table = top in TABLE_NAMES and path.endswith(_ENDINGS) and ".." not in below
    return path in _SINGLE or in_table or is_of_vectors(path)


def _is_log(path: str) -> bool:
    return _LOG in path


def _in_logs(path: str) -> tuple[str, int, str]:
    """Where a file of a log comes: by table, entries before checkpoints, these before the last.

    A log with a gap is none.
    """
    kind = 0 if path.endswith(".json") else 2 if path.endswith(_LAST_CHECKPOINT) else 1
    return path.partition("/")[0], kind, path
