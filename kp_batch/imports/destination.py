"""An archive that an import changes: a folder, or a local copy of an archive in a bucket.

Files of a copy are downloaded when needed.
"""

import fnmatch
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from filecmp import cmp
from pathlib import Path

from kp_batch.errors import BusyError
from kp_batch.files import HALF_WRITTEN, atomic_write, refuse_link, sync_names
from kp_batch.storage.store import ConflictError, run_parallel, store_at
from kp_batch.storage.urls import is_url, local_name
from kp_batch.warehouse.bucket.location import folder_of
from kp_batch.warehouse.lock import archive_notice, locked

OWN = "_import"  # folder of the imports' state
MAX_PARALLEL_BYTES = 32 << 20  # a larger file is stored alone: its upload is all in memory
_PART = f"*.{'[0-9a-f]' * 32}{HALF_WRITTEN}"  # see `files.temporary_sibling`
_DAY = "????-??-??.parquet"


@dataclass(frozen=True)
class Archive:
    """The files of an archive, by their names relative to it.

    Attributes:
        name: the archive's name, as its user wrote it.
        folder: its folder on this machine.
        remote: names of files that are not there yet.
        download: takes the name of such a file, and downloads it.
        store: takes the names of changed or removed files, and returns once the archive has these
            changes. It stores each file completely or not at all, in any order.
    """

    name: str
    folder: Path
    remote: set[str] = field(default_factory=set[str])
    download: Callable[[str], None] = lambda _: None
    store: Callable[[Sequence[str]], None] = lambda _: None

    def has_days(self) -> bool:
        """Whether any day has a file."""
        return any(self.folder.glob(_DAY)) or bool(fnmatch.filter(self.remote, _DAY))

    def local_path(self, name: str) -> Path:
        """Return the path of a file on this machine; the file may not exist.

        Raises:
            OSError: it cannot be downloaded.
        """
        if name in self.remote:
            self.download(name)
            self.remote.remove(name)
        return self.folder / name

    def fetch(self, names: Iterable[str]) -> None:
        """Download files that will be needed.

        Raises:
            OSError: one cannot be downloaded.
        """
        run_parallel(self.local_path, names)

    @contextmanager
    def writing(self, name: str) -> Generator[Path]:
        """Yield a path to write a file at; it replaces the old file if it differs."""
        path = self.local_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, durable=True) as written:
            yield written
            if is_same := _is_same(written, path):
                written.unlink()
        if not is_same:
            self.store([name])

    def put(self, name: str, write: Callable[[Path], int]) -> bool:
        """Write a file in place of the local one; see `local_path` and `store`.

        Args:
            name: name of the file.
            write: takes the path to write at, and returns the number of rows. If it is 0, the local
                file is removed.

        Returns:
            Whether the file differs from the one before.
        """
        path = self.folder / name
        with atomic_write(path, durable=True) as written:
            is_empty = not write(written)
            is_changed = path.exists() if is_empty else not _is_same(written, path)
            if is_empty or not is_changed:
                written.unlink()
        if is_empty:
            path.unlink(missing_ok=True)
        return is_changed


def _is_same(written: Path, path: Path) -> bool:
    return path.exists() and cmp(written, path, shallow=False)


def target_of(name: str, folder: Path) -> "LocalTarget | BucketTarget":
    """Return the place of the archive of that name.

    Args:
        name: its folder, or its URL in a bucket.
        folder: an empty folder, for a copy of an archive in a bucket.

    Raises:
        WarehouseError: no archive can be written there.
    """
    if not is_url(name):
        return LocalTarget(local_name(name))
    url = name.rstrip("/")
    folder_of(url)
    return BucketTarget(url, folder)


@dataclass(frozen=True)
class LocalTarget:
    """A folder of this machine."""

    name: str

    def snapshot(self) -> Archive:
        """Return the archive as it is now, for reading; another import may be changing it."""
        return Archive(self.name, Path(self.name))

    @contextmanager
    def alone(self) -> Generator[Archive]:
        """Lock the archive, so that nobody else changes it within the context.

        Raises:
            BusyError: another import is changing it.
        """
        archive = self.snapshot()
        refuse_link(archive.folder / OWN)
        with locked(archive.folder / OWN, wait=False, archive=self.name):
            for part in (*archive.folder.glob(_PART), *archive.folder.glob(f"{OWN}/{_PART}")):
                part.unlink()  # left by an import that was killed
            yield replace(archive, store=self._store)

    def _store(self, names: Sequence[str]) -> None:
        """Wait for the disk: sources may be removed after this."""
        for folder in {(Path(self.name) / name).parent for name in names}:
            sync_names(folder)


@dataclass(frozen=True)
class BucketTarget:
    """Objects below a URL.

    Each object is replaced only if it is still the one that was copied. So two writers at the same
    time cannot replace each other's objects.
    """

    url: str
    folder: Path
    etags: dict[str, str] = field(default_factory=dict[str, str])  # of the objects at the snapshot

    def snapshot(self) -> Archive:
        """See `LocalTarget`; local files are kept, unless their object was replaced."""
        objects = store_at(self.url).objects()
        etags = {each.path: each.etag for each in objects if _is_of_archive(each.path)}
        for name in dict(etags.items() ^ self.etags.items()):
            (self.folder / name).unlink(missing_ok=True)
        self.etags.clear()
        self.etags.update(etags)
        remote = {name for name in etags if not (self.folder / name).exists()}
        return Archive(self.url, self.folder, remote, self._download)

    @contextmanager
    def alone(self) -> Generator[Archive]:
        """See `LocalTarget`."""
        with archive_notice(f"{self.url}/{OWN}", self.url):
            yield replace(self.snapshot(), store=self._store)

    def _download(self, name: str) -> None:
        store_at(self.url).download(name, self.folder / name)

    def _store(self, names: Sequence[str]) -> None:
        run_parallel(self._store_one, [name for name in names if not self._is_large(name)])
        for name in filter(self._is_large, names):
            self._store_one(name)

    def _is_large(self, name: str) -> bool:
        file = self.folder / name
        return file.exists() and file.stat().st_size > MAX_PARALLEL_BYTES

    def _store_one(self, name: str) -> None:
        file, etag = self.folder / name, self.etags.get(name, "")
        try:
            if file.exists():
                self.etags[name] = store_at(self.url).write(name, file, instead_of=etag)
            else:
                self._delete(name, etag)
        except ConflictError as error:
            raise BusyError(
                f"another writer stored {name} in {self.url} at the same time; import again"
            ) from error

    def _delete(self, name: str, etag: str) -> None:
        store = store_at(self.url)
        head = store.head(name)
        if head and head.etag != etag:
            raise ConflictError(name)
        store.delete([name])
        self.etags.pop(name, None)


def _is_of_archive(path: str) -> bool:
    """Whether an object is a file of the archive; other objects are left alone."""
    folder, _, name = path.rpartition("/")
    return folder == OWN or (not folder and name.endswith((".parquet", ".jsonl")))
