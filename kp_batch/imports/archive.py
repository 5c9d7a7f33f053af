"""An archive that an import changes: a folder here, or a copy here of one in a bucket.

Of a copy, files are away until they are needed.
"""

import fnmatch
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from filecmp import cmp
from functools import partial
from pathlib import Path
from typing import Protocol

from kp_batch.errors import BusyError
from kp_batch.files import HALF_WRITTEN, atomic_write, refuse_link, sync_names
from kp_batch.storage.store import ConflictError, run_parallel, store_at
from kp_batch.storage.urls import is_url, local_name
from kp_batch.warehouse.bucket.location import folder_of
from kp_batch.warehouse.lock import Lease, archive_lease, locked

OWN = "_import"  # the folder of what is known for the next import
_LARGE = 32 << 20  # bytes; a write with a condition has the whole object in memory
_PART = f"*.{'[0-9a-f]' * 32}{HALF_WRITTEN}"  # see `files.temporary_sibling`
_DAY = "????-??-??.parquet"


def _stand_here(_: object) -> None:
    """Do nothing: the files of a folder stand where they belong."""


@dataclass(frozen=True)
class Archive:
    """The files of an archive, by their names below it.

    Attributes:
        name: as its user names it.
        folder: on this machine.
        away: the names of files that are not there yet.
        bring: takes the name of such a file, and writes it there.
        store: takes the names of files that were changed or removed here, and returns once they
            are so in the archive: each whole or not at all, in no special order.
    """

    name: str
    folder: Path
    away: set[str] = field(default_factory=set[str])
    bring: Callable[[str], None] = _stand_here
    store: Callable[[Sequence[str]], None] = _stand_here

    def days(self) -> set[str]:
        """The days that have a file."""
        here = (each.name for each in self.folder.glob(_DAY))
        return {Path(each).stem for each in (*here, *fnmatch.filter(self.away, _DAY))}

    def own(self) -> set[str]:
        """The files of its state."""
        here = (x.name for x in (self.folder / OWN).glob("*") if x.suffix in {".json", ".parquet"})
        away = fnmatch.filter(self.away, f"{OWN}/*")
        return {*away, *(f"{OWN}/{name}" for name in here)}

    def remove(self, names: Iterable[str]) -> None:
        """Remove files."""
        gone = sorted(names)
        for name in gone:
            self.away.discard(name)
            (self.folder / name).unlink(missing_ok=True)
        self.store(gone)

    def local_path(self, name: str) -> Path:
        """The path of a file on this machine, where it may be missing.

        Raises:
            OSError: it cannot be fetched.
        """
        if name in self.away:
            self.bring(name)
            self.away.remove(name)
        return self.folder / name

    def fetch(self, names: Iterable[str]) -> None:
        """Have files here that are needed one after another.

        Raises:
            OSError: one cannot be fetched.
        """
        run_parallel(self.local_path, names)

    @contextmanager
    def writing(self, name: str) -> Generator[Path]:
        """Give the name to write a file under; it takes its place and is stored if it differs."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, durable=True) as written:
            yield written
            if is_same := _is_same(written, path):
                written.unlink()
        if not is_same:
            self.store([name])

    def put(self, name: str, write: Callable[[Path], int]) -> bool:
        """Write a file in the place of what stands here; see `local_path` and `store`.

        Args:
            name: of the file.
            write: takes the name to write it under, and returns how many rows it has: without any,
                what stands here is removed.

        Returns:
            Whether it is another file than before.
        """
        path = self.folder / name
        with atomic_write(path, durable=True) as written:
            if not write(written):
                written.unlink()
                was_there = path.exists()
                path.unlink(missing_ok=True)
                return was_there
            if is_same := _is_same(written, path):
                written.unlink()
        return not is_same


def _is_same(written: Path, path: Path) -> bool:
    return path.exists() and cmp(written, path, shallow=False)


class Target(Protocol):
    """Where an archive stands."""

    def snapshot(self) -> Archive:
        """The archive as it is by now, to be read; another import may be changing it."""
        ...

    def alone(self) -> AbstractContextManager[Archive]:
        """The archive, which nobody else changes meanwhile.

        Raises:
            BusyError: another import is changing it.
        """
        ...


def target_of(name: str, folder: Path) -> Target:
    """Where the archive of that name stands; an empty folder is for a copy of it.

    Raises:
        WarehouseError: none can be written there.
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
        """See `Target`."""
        return Archive(self.name, Path(self.name))

    @contextmanager
    def alone(self) -> Generator[Archive]:
        """See `Target`."""
        archive = self.snapshot()
        refuse_link(archive.folder / OWN)
        with locked(archive.folder / OWN, wait=False, archive=self.name):
            for part in (*archive.folder.glob(_PART), *archive.folder.glob(f"{OWN}/{_PART}")):
                part.unlink()  # of one that was killed
            yield replace(archive, store=self._store)

    def _store(self, names: Sequence[str]) -> None:
        """Wait for the disk: what was imported may be removed from its source after that."""
        for folder in {(Path(self.name) / name).parent for name in names}:
            sync_names(folder)


@dataclass(frozen=True)
class BucketTarget:
    """Objects below a URL.

    Each is replaced only if it is still the one that the copy here was made of: a writer that has
    lost its lease without knowing replaces nothing of another one's.
    """

    url: str
    folder: Path
    etags: dict[str, str] = field(default_factory=dict[str, str])  # of what the copy is made of

    def snapshot(self) -> Archive:
        """See `Target`; what is here already stays, unless it is another object by now."""
        found = {
            each.path: each.etag
            for each in store_at(self.url).objects()
            if _is_of_archive(each.path)
        }
        for name in dict(found.items() ^ self.etags.items()):
            (self.folder / name).unlink(missing_ok=True)
        self.etags.clear()
        self.etags.update(found)
        away = {name for name in found if not (self.folder / name).exists()}
        return Archive(self.url, self.folder, away, self._bring)

    @contextmanager
    def alone(self) -> Generator[Archive]:
        """See `Target`."""
        with archive_lease(f"{self.url}/{OWN}", self.url) as lease:
            yield replace(self.snapshot(), store=partial(self._store, lease))

    def _bring(self, name: str) -> None:
        store_at(self.url).download(name, self.folder / name)

    def _store(self, lease: Lease, names: Sequence[str]) -> None:
        small = [name for name in names if not self._is_large(name)]
        run_parallel(partial(self._store_one, lease), small)
        for name in filter(self._is_large, names):
            self._store_one(lease, name)

    def _is_large(self, name: str) -> bool:
        file = self.folder / name
        return file.exists() and file.stat().st_size > _LARGE

    def _store_one(self, lease: Lease, name: str) -> None:
        lease.check()
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
        found = store.head(name)
        if found and found.etag != etag:
            raise ConflictError(name)
        store.delete([name])
        self.etags.pop(name, None)


def _is_of_archive(path: str) -> bool:
    """Whether an object is a file of the archive; what else stands there is left alone."""
    folder, _, name = path.rpartition("/")
    return folder in {"", OWN} and name.endswith((".parquet", ".jsonl", ".json"))
