"""Where a warehouse is: in a folder, or in a bucket, with a local folder as its copy.

The copy's `bucket.json` records the bucket's objects. A nightly run reads few of a warehouse's
vectors: the others stay in the bucket until they are read.
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
from kp_batch.files import atomic_write, cache_folder, make_durable_folder
from kp_batch.storage.urls import check_url, is_url, local_name

if TYPE_CHECKING:
    from kp_batch.storage.store import Object

# The environment variables that distinguish buckets of the same name.
# Without gs: there, obstore's conditions need generations, which its lists lack.
_BUCKETS = {
    "s3": (
        *("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        *("AWS_REGION", "AWS_DEFAULT_REGION"),  # some regions are separate clouds
    ),
    "az": (
        *("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR"),
        *("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURE_USE_FABRIC_ENDPOINT"),
    ),
}
_SLASH = ","  # in the name of a copy's folder, so that no copy is inside another

FETCHED_NS = 0  # the modification time that marks a vector file as fetched
_LAZY, _EAGER = ".vectors.npy", ".hashes.npy"  # of a chunk; hashes are read every night
_VECTOR_FILE = re.compile(r"vectors/[^/]+/[0-9a-f]{64}\.(?:vectors|hashes|windows)\.npy")
_FETCHING = [Lock() for _ in range(16)]  # so that threads wait if they need the same file


class Known(NamedTuple):
    """An object that a copy knows: its ETag, and the size and time of its local file."""

    etag: str
    size: int  # bytes
    mtime_ns: int

    @classmethod
    def of(cls, entry: Any) -> Self:
        """Read an entry of `bucket.json`.

        Raises:
            TypeError, ValueError: it is not a valid entry.
        """
        etag, size, mtime_ns = entry
        if not (isinstance(etag, str) and isinstance(size, int) and isinstance(mtime_ns, int)):
            raise TypeError("not an entry of bucket.json")
        return cls(etag, size, mtime_ns)


def folder_of(name: str | PathLike[str]) -> str | PathLike[str]:
    """Return the local folder of a warehouse's URL, or of a path, where `~` is the home.

    Raises:
        KpBatchError: the URL names no bucket, contains a secret, or cannot be that of a warehouse.
    """
    url = str(name).rstrip("/")
    if not is_url(url):
        local = os.path.expanduser(local_name(url))  # noqa: PTH111 (a folder may be called ~)
        return name if local == url else local
    check_url(url)
    scheme, _, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    if scheme not in _BUCKETS or _SLASH in path:
        possible = ", ".join(f"{scheme}://" for scheme in _BUCKETS)
        raise WarehouseError(
            f"{url!r} can hold neither a warehouse nor an imported archive: name a folder, or a "
            f"URL of {possible} without {_SLASH!r} in its path"
        )
    return _copies() / _store(scheme) / bucket / (_SLASH + path.replace("/", _SLASH))


def url_of(folder: Path) -> str | None:
    """Return the URL of the warehouse whose copy the folder is; None if it is not a copy."""
    try:
        store, bucket, path = folder.absolute().relative_to(_copies()).parts
    except (ValueError, RuntimeError):  # RuntimeError: no home folder
        return None
    scheme = store.partition("-")[0]
    if scheme not in _BUCKETS or store != _store(scheme):  # another account or endpoint
        return None
    return f"{scheme}://{bucket}{path.replace(_SLASH, '/')}".rstrip("/")


def make_folder_of(warehouse: Path) -> None:
    """Make a warehouse's folder if it is missing; only the user can read copies of buckets.

    Raises:
        OSError: the folder cannot be made.
    """
    if url_of(warehouse):
        _copies().mkdir(0o700, parents=True, exist_ok=True)
    make_durable_folder(warehouse)


def shown(warehouse: Path) -> str:
    """Return a warehouse's name as its user gives it."""
    return url_of(warehouse) or str(warehouse)


def _store(scheme: str) -> str:
    """Return the folder name for all buckets of the environment's account or endpoint."""
    values = [os.environ.get(name, "").rstrip("/") for name in _BUCKETS[scheme]]
    digest = sha256("\0".join(values).encode()).hexdigest()[:12]
    return f"{scheme}-{digest}" if any(values) else scheme


def _copies() -> Path:
    return cache_folder().absolute() / "warehouses"


@dataclass
class CopyRecord:
    """The bucket's objects as a copy knows them; paths are relative, like the objects' paths."""

    folder: Path
    copy_id: str = field(default_factory=lambda: uuid4().hex)
    known: dict[str, Known] = field(default_factory=dict[str, Known])  # by path
    was_published: bool = False  # whether the bucket ever had a manifest

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read a copy's record; it is empty if the file is missing or damaged."""
        with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
            copy_id, known, was_published = json.loads(_path(folder).read_text("utf-8"))
            if isinstance(copy_id, str) and isinstance(was_published, bool):
                by_path = {path: Known.of(entry) for path, entry in known.items()}
                return cls(folder, copy_id, by_path, was_published)
        return cls(folder)

    def save(self) -> None:
        """Write the record into the copy's folder."""
        with atomic_write(_path(self.folder)) as written:
            content = [self.copy_id, self.known, self.was_published]
            written.write_text(json.dumps(content), "utf-8")

    def etag_of(self, path: str) -> str:
        """Return the ETag of an object; empty if it is unknown."""
        return self.known[path].etag if path in self.known else ""

    def note(self, path: str, etag: str) -> None:
        """Note that a file equals the object with this ETag."""
        status = (self.folder / path).stat()
        self.known[path] = Known(etag, status.st_size, status.st_mtime_ns)

    def mark_remote(self, obj: "Object") -> None:
        """Record an object that is fetched only when it is read."""
        (self.folder / obj.path).unlink(missing_ok=True)  # may be an older object
        self.known[obj.path] = Known(obj.etag, obj.size, FETCHED_NS)

    def has(self, obj: "Object") -> bool:
        """Whether the copy has the current version of an object."""
        same = obj.path in self.known and self.etag_of(obj.path) == obj.etag
        return same and self.is_present(obj.path) and not self.is_new(obj.path)

    def is_present(self, path: str) -> bool:
        """Whether the copy has a file; remote vectors count as present while their hashes exist."""
        file, hashes = self.folder / path, self.folder / path.replace(_LAZY, _EAGER)
        return file.exists() or hashes.exists()

    def is_new(self, path: str) -> bool:
        """Whether a file differs from the bucket's object, or has none."""
        try:
            status = (self.folder / path).stat()
        except FileNotFoundError:  # remote
            return False
        known = self.known.get(path)
        return known is None or known[1:] != (status.st_size, status.st_mtime_ns)


def is_lazy(path: str) -> bool:
    """Whether an object is fetched only when it is read."""
    return is_vector_file(path) and path.endswith(_LAZY)


def is_vector_file(path: str) -> bool:
    """Whether an object is a file of a vector store."""
    return _VECTOR_FILE.fullmatch(path) is not None


def is_remote(file: Path) -> bool:
    """Whether a file of a warehouse is only in the bucket."""
    return _object_of(file) is not None


def local_copy(file: Path) -> Path:
    """Fetch a file if it is remote; return its path, even if it does not exist at all.

    Raises:
        OSError: the file cannot be fetched.
    """
    if file.exists():
        return file
    from kp_batch.storage.store import store_at  # not needed at the start of a command

    with _FETCHING[hash(file) % len(_FETCHING)], suppress(FileNotFoundError):
        if location := _object_of(file):  # another thread or process may have fetched it
            url, path = location
            store_at(url).download(path, file, mtime_ns=FETCHED_NS)
    return file


def _object_of(file: Path) -> tuple[str, str] | None:
    """Return the warehouse's URL and the object's path for a remote file; None for others.

    The URL follows from the copy's folder alone, so that the content of a file cannot lead to
    another bucket.
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


@lru_cache(maxsize=1)  # for the many chunks of one warehouse
def _read(folder: Path, *_: int) -> Mapping[str, Known]:
    return CopyRecord.of(folder).known


def _path(folder: Path) -> Path:
    return folder / "bucket.json"
