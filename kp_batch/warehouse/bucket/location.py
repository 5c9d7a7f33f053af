"""Where a warehouse stands: in a folder, or in a bucket, of which a folder here is the copy.

What a copy knows of the bucket's objects stands in its `bucket.json`. A night reads few of the
vectors that a warehouse has: the others stay in the bucket, and are fetched as they are read.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from uuid import uuid4

from kp_batch.errors import WarehouseError
from kp_batch.files import atomic_write, cache_folder
from kp_batch.storage.urls import check_url, is_url, local_name

if TYPE_CHECKING:
    from kp_batch.storage.store import Object

# By what a bucket is told from one of the same name in another place.
# Without gs: obstore makes its conditions of generations, which lists lack.
_BUCKETS = {
    "s3": (
        *("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        *("AWS_REGION", "AWS_DEFAULT_REGION"),  # some are clouds of their own
    ),
    "az": (
        *("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR"),
        *("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURE_USE_FABRIC_ENDPOINT"),
    ),
}
_SLASH = ","  # in the name of a copy's folder: one copy must not stand in another

FETCHED_NS = 0  # the time of a vectors' file that was fetched, by which it is known not to be new
_LAZY, _EAGER = ".vectors.npy", ".hashes.npy"  # of a chunk; the hashes are read every night
_OF_VECTORS = re.compile(r"vectors/[^/]+/[0-9a-f]{64}\.(?:vectors|hashes|windows)\.npy")
_FETCHING = [Lock() for _ in range(16)]  # threads that need the same file wait for each other


class Known(NamedTuple):
    """What a copy knows of an object, and of its file."""

    etag: str
    size: int  # bytes
    mtime_ns: int

    @classmethod
    def of(cls, kept: Any) -> Self:
        """Take what was kept.

        Raises:
            TypeError, ValueError: it is nothing that is kept.
        """
        etag, size, mtime_ns = kept
        if not (isinstance(etag, str) and isinstance(size, int) and isinstance(mtime_ns, int)):
            raise TypeError("not an object as it is known")
        return cls(etag, size, mtime_ns)


def folder_of(name: str | PathLike[str]) -> str | PathLike[str]:
    """The folder of a warehouse that is named by its URL; any other name is that of a folder.

    Raises:
        KpBatchError: the URL names no bucket, holds a secret, or cannot be that of a warehouse.
    """
    url = str(name).rstrip("/")
    if not is_url(url):
        local_name(url)
        return name
    check_url(url)
    scheme, _, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    if scheme not in _BUCKETS or _SLASH in path:
        possible = ", ".join(f"{each}://" for each in _BUCKETS)
        raise WarehouseError(
            f"neither a warehouse nor an imported archive can stand at {url!r}: name a folder, or "
            f"a URL of {possible} without {_SLASH!r} in its path"
        )
    return _copies() / _store(scheme) / bucket / (_SLASH + path.replace("/", _SLASH))


def url_of(folder: Path) -> str | None:
    """The URL of a bucket's warehouse whose copy is in that folder; None if it is none."""
    try:
        store, bucket, path = folder.absolute().relative_to(_copies()).parts
    except (ValueError, RuntimeError):  # RuntimeError: the user has no home
        return None
    scheme = store.partition("-")[0]
    if scheme not in _BUCKETS or store != _store(scheme):  # of a place that is not asked now
        return None
    return f"{scheme}://{bucket}{path.replace(_SLASH, '/')}".rstrip("/")


def make_folder_of(warehouse: Path) -> None:
    """Make the folder of a warehouse where it is missing; copies of buckets are the user's alone.

    Raises:
        OSError: it cannot be made.
    """
    if url_of(warehouse):
        _copies().mkdir(0o700, parents=True, exist_ok=True)
    warehouse.mkdir(parents=True, exist_ok=True)


def shown(warehouse: Path) -> str:
    """A warehouse as its user names it."""
    return url_of(warehouse) or str(warehouse)


def _store(scheme: str) -> str:
    """The name of the folder for all buckets of the account, or the endpoint, that is set."""
    places = [os.environ.get(name, "").rstrip("/") for name in _BUCKETS[scheme]]
    digest = sha256("\0".join(places).encode()).hexdigest()[:12]
    return f"{scheme}-{digest}" if any(places) else scheme


def _copies() -> Path:
    return cache_folder().absolute() / "warehouses"


@dataclass
class Record:
    """What a copy knows of the bucket's objects; a path is relative, and the object's."""

    folder: Path
    copy_id: str = field(default_factory=lambda: uuid4().hex)
    known: dict[str, Known] = field(default_factory=dict[str, Known])  # by the paths
    was_published: bool = False  # whether the bucket ever had a manifest

    @classmethod
    def of(cls, folder: Path) -> Self:
        """What the copy in a folder knows; nothing, where that is damaged."""
        with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
            copy_id, known, was_published = json.loads(_path(folder).read_text("utf-8"))
            if isinstance(copy_id, str) and isinstance(was_published, bool):
                by_path = {path: Known.of(each) for path, each in known.items()}
                return cls(folder, copy_id, by_path, was_published)
        return cls(folder)

    def keep(self) -> None:
        """Keep what is known."""
        with atomic_write(_path(self.folder)) as written:
            kept = [self.copy_id, self.known, self.was_published]
            written.write_text(json.dumps(kept), "utf-8")

    def etag_of(self, path: str) -> str:
        """The ETag of an object; empty where none is known."""
        return self.known[path].etag if path in self.known else ""

    def note(self, path: str, etag: str) -> None:
        """Note that a file is as the bucket has it."""
        status = (self.folder / path).stat()
        self.known[path] = Known(etag, status.st_size, status.st_mtime_ns)

    def mark_remote(self, found: "Object") -> None:
        """Note that an object is fetched only when it is read."""
        (self.folder / found.path).unlink(missing_ok=True)  # of an older one
        self.known[found.path] = Known(found.etag, found.size, FETCHED_NS)

    def has(self, found: "Object") -> bool:
        """Whether the copy has an object as it is now."""
        same = found.path in self.known and self.etag_of(found.path) == found.etag
        return same and self.is_present(found.path) and not self.is_new(found.path)

    def is_present(self, path: str) -> bool:
        """Whether a file is here; vectors that are not stand and fall with their hashes."""
        file, hashes = self.folder / path, self.folder / path.replace(_LAZY, _EAGER)
        return file.exists() or hashes.exists()

    def is_new(self, path: str) -> bool:
        """Whether a file is not as the bucket has it."""
        try:
            status = (self.folder / path).stat()
        except FileNotFoundError:  # it is remote
            return False
        known = self.known.get(path)
        return known is None or known[1:] != (status.st_size, status.st_mtime_ns)


def is_lazy(path: str) -> bool:
    """Whether an object is fetched only when it is read."""
    return is_of_vectors(path) and path.endswith(_LAZY)


def is_of_vectors(path: str) -> bool:
    """Whether an object is a file of a vector store."""
    return _OF_VECTORS.fullmatch(path) is not None


def is_remote(file: Path) -> bool:
    """Whether a file of a warehouse is not here, and its copy knows it to be in the bucket."""
    return _object_of(file) is not None


def local_copy(file: Path) -> Path:
    """The path of a file, which is fetched first if it is remote; it may be in neither place.

    Raises:
        OSError: it cannot be fetched.
    """
    if file.exists():
        return file
    from kp_batch.storage.store import store_at  # a command that only begins does without

    with _FETCHING[hash(file) % len(_FETCHING)], suppress(FileNotFoundError):
        if found := _object_of(file):  # another thread, or process, may have fetched it
            url, path = found
            store_at(url).download(path, file, mtime_ns=FETCHED_NS)
    return file


def _object_of(file: Path) -> tuple[str, str] | None:
    """The warehouse's URL, and the path below it, of a remote file; None if it is none.

    Whatever anybody has noted elsewhere, objects of a copy's own bucket alone are fetched.
    """
    if file.exists():
        return None
    for folder in file.parents:
        if url := url_of(folder):
            path = file.relative_to(folder).as_posix()
            return (url, path) if path in _known(folder) else None
    return None


def _known(folder: Path) -> Mapping[str, Known]:
    with suppress(FileNotFoundError):
        status = _path(folder).stat()
        return _read(folder, status.st_ino, status.st_mtime_ns, status.st_size)
    return {}


@lru_cache(maxsize=1)  # many chunks are looked at one after another
def _read(folder: Path, *_: int) -> Mapping[str, Known]:
    return Record.of(folder).known


def _path(folder: Path) -> Path:
    return folder / "bucket.json"
