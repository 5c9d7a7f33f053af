"""The objects below a URL: listed, read, and written with a condition."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kp_batch.files import atomic_write
from kp_batch.storage.credentials import settings_of
from kp_batch.storage.faults import ConflictError, told
from kp_batch.storage.objects import Object, bare
from kp_batch.storage.traffic import TRAFFIC
from kp_batch.storage.urls import check_url

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_PIECE = 8 << 20  # bytes that pass through memory at once
_AT_ONCE = 1_000  # objects of one request that lists or deletes


@cache  # a store keeps its connections
def store_at(url: str) -> "Store":
    """The store of a URL."""
    check_url(url)
    return Store(url)


def bucket_and_path(url: str) -> tuple["Store", str]:
    """The bucket of a URL, or the server, and the path there."""
    scheme, _, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    check_url(url)
    return store_at(f"{scheme}://{bucket}"), path


@dataclass(frozen=True)
class Store:
    """The objects below a URL.

    Args:
        url: of a bucket, or of what stands below a path in it; see `check_url`.
    """

    url: str

    @cached_property
    def _store(self) -> "ObjectStore":
        from obstore.store import from_url

        with self._told(""):
            return from_url(self.url, **settings_of(self.url))

    def objects(self, below: str = "") -> Iterator[Object]:
        """List all objects below a folder, in pages, in the order of their paths.

        Raises:
            OSError: the store cannot be asked.
        """
        import obstore

        with self._told(below):
            for page in obstore.list(self._store, below or None, chunk_size=_AT_ONCE):
                TRAFFIC.count()
                yield from (Object.of(each) for each in page)

    def look(self, path: str = "") -> Object | None:
        """What the store tells of one object; None if there is none.

        Raises:
            OSError: the store cannot be asked.
        """
        import obstore

        TRAFFIC.count()
        try:
            with self._told(path):
                return Object.of(obstore.head(self._store, path), path)
        except FileNotFoundError:
            return None

    def read(self, path: str) -> tuple[bytes, Object]:
        """Read an object; returns its content, and what the store tells of it.

        Raises:
            FileNotFoundError: there is none.
            OSError: the store cannot be asked.
        """
        import obstore

        with self._told(path):
            found = obstore.get(self._store, path)
            content = bytes(found.bytes())
        TRAFFIC.count(read=len(content))
        return content, Object.of(found.meta, path)

    def pieces(self, path: str = "") -> Iterator[bytes]:
        """Read an object piece by piece.

        Raises:
            FileNotFoundError: there is none.
            OSError: the store cannot be asked, or stopped in between.
        """
        import obstore

        TRAFFIC.count()
        with self._told(path):
            for piece in obstore.get(self._store, path).stream(min_chunk_size=_PIECE):
                TRAFFIC.count(requests=0, read=len(piece))
                yield bytes(piece)

    def download(self, path: str, target: Path, mtime_ns: int | None = None) -> None:
        """Copy an object into a file, which appears whole or not at all.

        Args:
            path: of the object.
            target: the file.
            mtime_ns: the time that it gets; None for that of its writing.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be read, or not be written here.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as written, written.open("wb") as file:
            for piece in self.pieces(path):
                file.write(piece)
            file.flush()
            if mtime_ns is not None:
                os.utime(written, ns=(mtime_ns, mtime_ns))

    def write(
        self, path: str, content: bytes | Path, *, instead_of: str = "", new: bool = False
    ) -> str:
        """Write an object, whole or not at all.

        A write whose answer was lost is tried again, and then finds its own object: that is none of
        another writer's.

        Args:
            path: of the object.
            content: bytes, or a file.
            instead_of: the ETag that it must have.
            new: whether there must be none.

        Returns:
            Its ETag.

        Raises:
            ConflictError: the condition does not hold; nothing was written.
            OSError: it cannot be written.
        """
        condition = "create" if new else {"e_tag": f'"{instead_of}"'} if instead_of else "overwrite"
        try:
            return self._put(path, content, condition)
        except ConflictError:
            with suppress(FileNotFoundError):
                there, found = self.read(path)
                if there == (content.read_bytes() if isinstance(content, Path) else content):
                    return found.etag
            raise

    def _put(self, path: str, content: bytes | Path, condition: Any) -> str:
        import obstore

        size = content.stat().st_size if isinstance(content, Path) else len(content)
        # A condition holds for one request alone, so what has one is not cut into parts.
        in_parts = condition == "overwrite" and size > _PIECE
        TRAFFIC.count(requests=2 + -(-size // _PIECE) if in_parts else 1, written=size)
        with self._told(path):
            done = obstore.put(
                self._store,
                path,
                content,
                mode=condition,
                use_multipart=in_parts,
                chunk_size=_PIECE,
                max_concurrency=1,  # many objects are on their way at once
            )
        return bare(done["e_tag"])

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; those that are gone already are no error.

        Raises:
            OSError: they cannot be deleted.
        """
        import obstore

        for first in range(0, len(paths), _AT_ONCE):
            TRAFFIC.count()
            some = list(paths[first : first + _AT_ONCE])
            try:
                with self._told(""):
                    obstore.delete(self._store, some)
            except FileNotFoundError:  # so does Azure tell of one that is gone
                for each in some:
                    TRAFFIC.count()
                    with suppress(FileNotFoundError), self._told(each):
                        obstore.delete(self._store, each)

    def file_system(self) -> Any:
        """What lets a DuckDB connection read URLs of this kind without an extension."""
        from obstore.fsspec import FsspecStore

        scheme = self.url.partition("://")[0]
        return FsspecStore(scheme, **settings_of(self.url))  # type: ignore[call-overload]

    def _told(self, path: str) -> AbstractContextManager[None]:
        return told("/".join(filter(None, (self.url.rstrip("/"), path))))
