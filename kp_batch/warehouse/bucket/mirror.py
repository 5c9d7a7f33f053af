"""The local copy of a warehouse in a bucket: a folder that is used like any other warehouse.

Before work begins, the copy is made equal to the bucket, except that vectors stay there until they
are read. A writer's new files are stored before the manifest, which is replaced only if it is still
the one that the work began from. Then files that the writer removed from the copy are deleted from
the bucket.

Several writers may work at once, though a notice asks them to take turns. That does no harm:

- *One of them publishes.* Each publication has a unique id, so a manifest never recurs: if the
  bucket's is that of the copy, nothing was published in between. If the answer to a write was lost,
  the writer recognises its own manifest by the id.
- *None overwrites files that another one needs.* The names of data files and of manifests in the
  log are unique; those of lists and vectors are digests, so that two writers' files are the same.
  The page is replaced only if the copy knows its current version. The same is true for a manifest
  in the log from which a forget took traces, and only after the files that it names. A Delta
  table's log exports what is published. It is one sequence, and each entry is created once: a
  writer that finds the next number taken exports again, from what is published then.
- *None deletes files that another one needs.* Only a writer that has published, and allowed it,
  deletes anything but the page. It deletes files that existed before and that no kept manifest
  names, and only while its own manifest is the published one. A later manifest names files of this
  one, and new ones that this copy does not know. A writer that began from an earlier manifest can
  no longer publish. A forget amends kept manifests with files that none names yet. Until it has
  ended, a vacuum is refused, and another forget takes the same traces out of the same manifests.
  Vectors and the page may be lost: they are made again.
- *A copy is complete.* All files of a manifest are stored before it, and deleted only after a later
  one. So a list of objects is complete if the manifest stayed the same.
"""

import json
import re
import shutil
import time
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from kp_batch.errors import (
    BusyError,
    OvertakenError,
    StorageError,
    WarehouseError,
    is_passing,
)
from kp_batch.files import HALF_WRITTEN, atomic_write, files_below
from kp_batch.storage.store import AT_ONCE, ConflictError, Object, Store, run_parallel, store_at
from kp_batch.warehouse.bucket.location import (
    FETCHED_NS,
    CopyRecord,
    is_lazy,
    is_vector_file,
    make_folder_of,
    url_of,
)
from kp_batch.warehouse.layout import TABLE_NAMES, Layout, remove_candidate
from kp_batch.warehouse.lock import locked, noticed
from kp_batch.warehouse.manifest import DAMAGED, Manifest

_ROOT = Layout(Path())
_MANIFEST, _MARKER = _ROOT.manifest.name, _ROOT.forgetting.name
_PAGE = _ROOT.report.name
_SINGLE = (_MANIFEST, _PAGE, _MARKER)
_FOLDERS = (*TABLE_NAMES, _ROOT.log.name, _ROOT.all_vectors.name)
_DELTA_LOG, _LAST_CHECKPOINT = "/_delta_log/", "_last_checkpoint"
_ENDINGS = (".parquet", ".json", f"/{_LAST_CHECKPOINT}")

_IN_LOG = re.compile(rf"{_ROOT.log.name}/(?:files/)?[0-9a-f]{{32}}\.json")

_TRIES = 5  # attempts to see the bucket unchanged
_FETCHING_S = 3_600  # a half-written file may be a vector in transfer for so long


@dataclass
class Mirror:
    """A copy, its bucket, and the state of its writer."""

    record: CopyRecord
    store: Store
    etag: str = ""  # of the manifest that work began from, or this writer published
    unconfirmed: set[bytes] = field(default_factory=set[bytes])  # manifests that may be published
    stored: set[str] = field(default_factory=set[str])  # stored files that may be in no manifest
    skips_upload: bool = False  # see `skip_upload`
    unneeded: Collection[str] | None = None  # see `allow_deletion`

    @classmethod
    def of(cls, folder: Path) -> "Mirror | None":
        """Return the copy in a folder; None if the folder is not a copy of a bucket."""
        url = url_of(folder)
        return cls(CopyRecord.of(folder), store_at(url)) if url else None

    @property
    def folder(self) -> Path:
        """The folder of the copy."""
        return self.record.folder

    def pull(self) -> None:
        """Make the copy equal to the bucket, except for vectors that are not stored there yet.

        Raises:
            WarehouseError: the bucket is empty now, and was not before.
            StorageError: other writers keep changing it.
            OSError: the bucket cannot be read.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                if self._pull_once():
                    return
            except TimeoutError:  # it was waited for
                raise
            except OSError as error:  # the fetched files stay
                if not (tries_left and is_passing(error)):
                    raise
        raise StorageError(f"{self.store.url} keeps changing; try again later")

    def _pull_once(self) -> bool:
        """Make the copy equal to a list of the bucket; False if others published during this."""
        record = self.record
        content, now = self._manifest()
        if now is None and record.was_published:
            raise WarehouseError(
                f"what was published in {self.store.url} is gone: restore it, or, to start over, "
                f"remove its working copy {self.folder}"
            )
        # A list comes in pages, perhaps from different moments.
        objects = {obj.path: obj for obj in self.store.objects() if is_shared(obj.path)}
        objects.pop(_MANIFEST, None)
        if not self._fetch_all([obj for obj in objects.values() if not record.has(obj)]):
            return False
        then, self.etag = self.store.head(_MANIFEST), now.etag if now else ""
        if self.etag != (then.etag if then else ""):
            return False
        before = _manifest_here(self.folder)
        if content != before:  # it may contain traces that were forgotten in the meantime
            remove_candidate(self.folder)
        keeps_own = content == before or _forgotten(content) == _forgotten(before)
        if now and not record.has(now):
            self._save(content, now)
        record.was_published = now is not None
        self.prune_to({*objects, *([_MANIFEST] if now else [])}, keep_local_vectors=keeps_own)
        record.save()
        self.unconfirmed.clear()  # it is known now what is published
        return True

    def _manifest(self) -> tuple[bytes, Object | None]:
        try:
            return self.store.read(_MANIFEST)
        except FileNotFoundError:
            return b"", None

    def _fetch_all(self, objects: Sequence[Object]) -> bool:
        """Copy objects; False if one was deleted after it was listed."""
        try:
            run_parallel(self._fetch, objects)
        except FileNotFoundError:
            return False
        finally:
            self.record.save()
        return True

    def _fetch(self, obj: Object) -> None:
        if is_lazy(obj.path):
            self.record.mark_remote(obj)
            return
        if obj.path in _SINGLE or obj.path.endswith(_LAST_CHECKPOINT):
            # Another writer may have replaced it after it was listed.
            self._save(*self.store.read(obj.path))
            return
        # So that a fetched vector never looks like one that this machine made.
        mtime_ns = FETCHED_NS if is_vector_file(obj.path) else None
        self.store.download(obj.path, self.folder / obj.path, mtime_ns)
        self.record.note(obj.path, obj.etag)

    def _save(self, content: bytes, obj: Object) -> None:
        (self.folder / obj.path).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.folder / obj.path) as written:
            written.write_bytes(content)
        self.record.note(obj.path, obj.etag)

    def prune_to(self, paths: Collection[str], *, keep_local_vectors: bool) -> None:
        """Remove files that the bucket lacks, and unfinished files of killed commands.

        Args:
            paths: the paths of the bucket's objects.
            keep_local_vectors: whether to keep vectors that this machine made and never stored.
        """
        known = self.record.known
        for path in {*known, *self._files()}.difference(paths):
            if not (keep_local_vectors and path not in known and self._is_local_vector(path)):
                (self.folder / path).unlink(missing_ok=True)
                known.pop(path, None)
        # Unfinished files may contain traces that were forgotten in the meantime.
        shutil.rmtree(Layout(self.folder).all_staging, ignore_errors=True)
        for file in self._files_in_folders():
            with suppress(FileNotFoundError):
                is_old = file.stat().st_mtime < time.time() - _FETCHING_S
                if is_old and file.suffix == HALF_WRITTEN:
                    file.unlink()

    def _is_local_vector(self, path: str) -> bool:
        """Whether a file contains vectors, and was not fetched."""
        with suppress(FileNotFoundError):
            mtime_ns = (self.folder / path).stat().st_mtime_ns
            return is_vector_file(path) and mtime_ns != FETCHED_NS
        return False

    def _files(self) -> Iterator[str]:
        """Yield the paths of the copy's files that belong into the bucket."""
        paths = (file.relative_to(self.folder).as_posix() for file in self._files_in_folders())
        yield from filter(is_shared, paths)
        yield from (name for name in _SINGLE if (self.folder / name).exists())

    def _files_in_folders(self) -> Iterator[Path]:
        return (file for name in _FOLDERS for file in files_below(self.folder / name))

    def publish(self, manifest: str) -> None:
        """Store new files, then the manifest: from then on, everybody sees them.

        Raises:
            OvertakenError: another writer has published; nothing of this one is published.
            OSError: a file cannot be stored.
        """
        self._check_newest()  # or a long upload would be in vain
        content = manifest.encode()
        self._store_new()
        if not self.try_store_logs():  # of a killed writer; another writer stores them now
            raise self._overtaken()
        self.unconfirmed.add(content)
        try:
            self.etag = self.store.write(_MANIFEST, content, instead_of=self.etag)
        except ConflictError as error:
            raise self._overtaken() from error
        self.record.was_published = True
        self.stored.clear()

    def _check_newest(self) -> None:
        """Refuse to publish if the bucket's manifest is no longer the one that work began from."""
        content, now = self._manifest()
        etag = now.etag if now else ""
        if content in self.unconfirmed:  # its own, whose answer was lost
            self.etag = etag
        if etag != self.etag:
            raise self._overtaken()

    def _overtaken(self) -> OvertakenError:
        self._withdraw()
        return OvertakenError(
            f"another writer published in {self.store.url} at the same time, so this command "
            "published nothing; run the same command again"
        )

    def _withdraw(self) -> None:
        """Delete what was stored in vain: it may contain traces that were forgotten.

        Vectors stay, because other writers may have them as well, unless something was forgotten.
        """
        newest, here = self._manifest()[0], _manifest_here(self.folder)
        if not self._is_in_vain(newest, here):
            self.stored.clear()  # others may build upon these files
            return
        was_forgotten = _forgotten(newest) != _forgotten(here)
        gone = [path for path in self.stored if was_forgotten or not is_vector_file(path)]
        self.store.delete(gone)
        self.stored.difference_update(gone)
        for path in gone:
            self.record.known.pop(path, None)
        self.record.save()

    def _is_in_vain(self, newest: bytes, here: bytes) -> bool:
        """Whether only others have published since the copy's manifest; False if unsure.

        If an answer was lost, this writer may have published, and another one built upon that.
        """
        with suppress(FileNotFoundError, *DAMAGED):
            last, name = _parsed(here).name, _parsed(newest).name
            unconfirmed = {_parsed(each).name for each in self.unconfirmed} - {last}
            while unconfirmed and name != last:
                if name in unconfirmed:
                    return False
                content, _ = self.store.read(_ROOT.past_manifest(name).as_posix())
                name = _parsed(content).before
            return True
        return False

    def finish(self, export: Callable[[], None]) -> None:
        """Store new files and Delta's logs, and delete the objects whose files were removed.

        Args:
            export: brings the copy's Delta tables up to date.

        Raises:
            OvertakenError: another writer took over; what was published before is intact.
            StorageError: others keep writing the Delta tables.
            OSError: the bucket cannot be written.
        """
        if self.skips_upload:
            return
        removed, own = self._removed_paths(), self.etag
        self._store_new()
        if self.stored and not self._is_newest(own):
            self._withdraw()
        if self.etag and self.record.is_present(_MANIFEST):
            self.record.note(_MANIFEST, self.etag)
        self.store_logs(export)
        marker = [path for path in removed if path == _MARKER]
        files = [path for path in removed if path != _MARKER]
        for paths in (files, marker):  # the marker of unfinished work is removed last
            for first in range(0, len(paths), AT_ONCE):
                self._delete(paths[first : first + AT_ONCE], own)
        for path in removed:
            (self.folder / path).unlink(missing_ok=True)  # fetched again with others' logs
            self.record.known.pop(path, None)
        self.record.save()

    def _delete(self, paths: Sequence[str], own: str) -> None:
        """Delete objects by one request, unless another manifest than its own is published."""
        if not self._is_newest(own):
            raise OvertakenError(
                f"another writer published in {self.store.url} at the same time, so nothing more "
                "was deleted; run the same command again"
            )
        self.store.delete(paths)

    def _is_newest(self, etag: str) -> bool:
        head = self.store.head(_MANIFEST)
        return etag == (head.etag if head else "")

    def _removed_paths(self) -> list[str]:
        """Return the objects whose files this writer has removed; other files may be lost."""
        gone = (path for path in self.record.known if not self.record.is_present(path))
        return sorted(filter(self._is_removed, gone))

    def _is_removed(self, path: str) -> bool:
        if path == _PAGE or self.unneeded is None:
            return path == _PAGE
        return path in self.unneeded or path == _MARKER or is_vector_file(path)

    def _store_new(self) -> None:
        """Store the files that the bucket lacks, except the manifest and Delta's logs."""
        apart = (path for path in self._files() if path != _MANIFEST and not _is_delta_log(path))
        new = {*filter(self.record.is_new, apart)}
        amended = {*filter(self._is_amended, new)}
        self.stored.update(path for path in new - amended if path not in _SINGLE)
        try:
            run_parallel(self._upload, sorted(new - amended))
            if amended:
                self.stored.clear()  # a manifest names them now
                run_parallel(self._upload, sorted(amended))
        finally:
            self.record.save()

    def store_logs(self, export: Callable[[], None]) -> None:
        """Store new entries of Delta's logs; if another writer was first, export again.

        Raises:
            StorageError: others are always first; what is published is whole.
        """
        for _ in range(_TRIES):
            if self.try_store_logs():
                return
            self.pull()
            export()
        raise StorageError(
            f"the Delta tables of {self.store.url} keep changing; what is published is intact; run "
            "again to export it"
        )

    def try_store_logs(self) -> bool:
        """Store new entries of Delta's logs; return False if another writer was first."""
        try:
            # Entries in the order of their numbers, so that a log has no gap; then checkpoints.
            for path in sorted(filter(self.record.is_new, self._delta_logs()), key=_log_order):
                self._upload(path)
        except OvertakenError:
            return False
        finally:
            self.record.save()
        return True

    def _delta_logs(self) -> Iterator[str]:
        logs = self.folder.glob(f"*{_DELTA_LOG}*")
        yield from filter(is_shared, (file.relative_to(self.folder).as_posix() for file in logs))

    def _is_amended(self, path: str) -> bool:
        """Whether it is a manifest of the log in the bucket, perhaps with other files."""
        return _is_in_log(path) and path in self.record.known

    def _upload(self, path: str) -> None:
        is_replaced = path in _SINGLE or self._is_amended(path)
        etag = self.record.etag_of(path) if is_replaced else None
        if _is_delta_log(path) and not path.endswith(_LAST_CHECKPOINT):
            etag = ""
        try:
            etag = self.store.write(path, self.folder / path, instead_of=etag)
        except ConflictError as error:
            raise OvertakenError(
                f"another writer stored {path} in {self.store.url} at the same time; run the same "
                "command again"
            ) from error
        self.record.note(path, etag)


_OPEN: dict[Path, Mirror] = {}  # copies that this process writes to, by folder


@contextmanager
def bucket_session(folder: Path, export: Callable[[], None]) -> Generator[None]:
    """Write to a warehouse's bucket, if it is in one; the caller holds both locks of the copy.

    If the work within succeeds, its new files are stored, and the files that it removed are
    deleted. If it fails after publishing, Delta's logs are stored. For `export` see
    `Mirror.finish`.

    Raises:
        BusyError: another process is writing.
        WarehouseError: the bucket cannot be a warehouse's.
        OSError: it cannot be read or written.
    """
    mirror = Mirror.of(folder)
    if mirror is None:
        yield
        return
    if not mirror.record.known:
        mirror.record.save()  # so that after a failure this copy knows its own notice
    with noticed(mirror.store, mirror.record.copy_id):
        mirror.pull()
        began, _OPEN[folder] = mirror.etag, mirror
        try:
            yield
            mirror.finish(export)
        except Exception:
            if mirror.etag != began:  # it has published, as a refused run does
                with suppress(Exception):  # the next writer does it
                    mirror.store_logs(export)
            raise
        finally:
            del _OPEN[folder]


def publish_in_bucket(folder: Path, manifest: str) -> None:
    """Publish in the bucket, if the warehouse is in one, before the copy's manifest is replaced.

    Raises:
        OvertakenError: another writer took over; nothing of this one is published.
        OSError: the bucket cannot be written.
    """
    if folder in _OPEN and _manifest_here(folder) != manifest.encode():
        _OPEN[folder].publish(manifest)


def pull_again(folder: Path) -> bool:
    """Make the copy equal to the bucket once more, after another writer has published.

    Returns:
        Whether the warehouse is in a bucket.

    Raises:
        OSError: the bucket cannot be read.
    """
    if folder not in _OPEN:
        return False
    _OPEN[folder].pull()
    return True


def skip_upload(folder: Path) -> None:
    """Store nothing in the bucket when this writer ends: its new files stay in the copy."""
    if folder in _OPEN:
        _OPEN[folder].skips_upload = True


def allow_deletion(folder: Path, unneeded: Iterable[Path]) -> None:
    """Delete from the bucket, when this writer ends, what it removes from its copy until then.

    Call it after publishing a manifest that names none of that.

    Args:
        folder: the folder of the copy.
        unneeded: the files of tables, lists and manifests that it may remove, in addition to
            vectors.
    """
    if folder in _OPEN:
        _OPEN[folder].unneeded = {path.relative_to(folder).as_posix() for path in unneeded}


def is_uncertain(folder: Path) -> bool:
    """Whether the bucket has, or may have, a manifest of this writer that the copy lacks."""
    if folder not in _OPEN:
        return False
    return bool(_OPEN[folder].unconfirmed - {_manifest_here(folder)})


def _manifest_here(folder: Path) -> bytes:
    """Return the content of a copy's manifest; empty if it has none."""
    file = Layout(folder).manifest
    return file.read_bytes() if file.exists() else b""


def _parsed(manifest: bytes) -> Manifest:
    """Parse a manifest from any source; without one, return one without a name."""
    return Manifest.read(json.loads(manifest)) if manifest else Manifest({}, {})


def _forgotten(manifest: bytes) -> Mapping[str, str] | None:
    """Return the lists of what was forgotten; None if these cannot be read."""
    with suppress(*DAMAGED):
        return _parsed(manifest).tables.get("forgotten")
    return None


def keeps_versions(folder: Path) -> bool:
    """Whether the warehouse is in a bucket that keeps older versions of its objects."""
    mirror = Mirror.of(folder)
    head = mirror.store.head(_MANIFEST) if mirror else None
    return bool(head and head.version)


def refresh(folder: Path) -> None:
    """Make a copy equal to its bucket, before it is read.

    If a writer works on this machine, it has already done so.

    Raises:
        OSError: the bucket cannot be read.
    """
    if not url_of(folder):
        return
    with sync_lock(folder), suppress(BusyError):
        with locked(folder, wait=False) as is_first:
            pass  # there is no other writer, and a new one waits
        if is_first and (mirror := Mirror.of(folder)):
            mirror.pull()


def sync_lock(folder: Path) -> AbstractContextManager[object]:
    """Return the lock for making a copy equal to its bucket; it is taken before all other locks.

    It also excludes threads, and is not reentrant. Readers wait for it, so its holder must not wait
    for another writer.
    """
    if not url_of(folder):
        return nullcontext()
    make_folder_of(folder)
    return FileLock(folder / "pull.lock", thread_local=False)


def is_shared(path: str) -> bool:
    """Whether an object is a file of a warehouse; others below its URL are left alone."""
    top, *below = path.split("/")
    in_table = top in TABLE_NAMES and path.endswith(_ENDINGS) and ".." not in below
    return path in _SINGLE or in_table or _is_in_log(path) or is_vector_file(path)


def _is_in_log(path: str) -> bool:
    return _IN_LOG.fullmatch(path) is not None


def _is_delta_log(path: str) -> bool:
    return _DELTA_LOG in path


def _log_order(path: str) -> tuple[bool, str]:
    return not path.endswith(".json"), path
