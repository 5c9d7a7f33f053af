"""Object stores, by their URLs: the one place that speaks with a bucket.

Credentials and endpoints come from where each provider's own tools look, never from a URL: so no
table, log or message has them.
"""

import errno
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kp_batch.errors import KpBatchError, StorageError
from kp_batch.text import number, one_line
from kp_batch.whole_files import whole

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = ("s3", "gs", "az", "https", "http")
_PIECE = 8 << 20  # bytes that pass through memory at once
_AT_ONCE = 1_000  # objects of one request that lists or deletes
# What the store says of a failure that may be over soon is told apart from one that may not.
_LASTING = ("NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "InvalidAccessKeyId")


@dataclass(frozen=True, order=True)
class Object:
    """What a store tells of an object."""

    path: str  # below the store's URL; of the URL's own object, empty
    size: int  # bytes
    mtime_ns: int
    etag: str  # changes with the content; empty where the store tells none
    version: str = ""  # of a store that keeps older ones


class ConflictError(KpBatchError):
    """An object is not as the condition of a write says: another writer was there."""


@dataclass
class Traffic:
    """What was asked of stores, tries again not counted, and what that moved."""

    requests: int = 0
    read: int = 0  # bytes
    written: int = 0  # bytes

    def count(self, *, requests: int = 1, read: int = 0, written: int = 0) -> None:
        """Add to all of it."""
        self.requests += requests
        self.read += read
        self.written += written

    def __str__(self) -> str:
        mib = (each / (1 << 20) for each in (self.read, self.written))
        read, written = (f"{each:,.1f} MiB" for each in mib)
        return f"{number(self.requests, 'request')}, {read} read, {written} written"


TRAFFIC = Traffic()  # of this process


def is_url(name: str) -> bool:
    """Whether a name is of an object store, not of this machine's disk."""
    return name.partition("://")[0] in SCHEMES and "://" in name


def check_url(url: str) -> None:
    """Refuse a URL that holds a secret, or of which a part would be taken for something else.

    Raises:
        KpBatchError: it has credentials, or a query, or no bucket.
    """
    found = urlsplit(url)
    is_web = found.scheme in ("http", "https")  # in a bucket, ? and # are letters of a name
    if "@" in found.netloc or (is_web and (found.query or found.fragment)):
        raise KpBatchError(
            f"the URL of {found.scheme}://{found.hostname or ''} has credentials or a query, which "
            "would stand in tables and logs; give them in the environment variables of that store"
        )
    if not found.netloc:
        raise KpBatchError(f"the URL {url!r} names no bucket")


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
            return from_url(self.url, **_settings(self.url))

    def objects(self, below: str = "") -> Iterator[Object]:
        """List all objects below a folder, in pages, in the order of their paths.

        Raises:
            OSError: the store cannot be asked.
        """
        import obstore

        with self._told(below):
            for page in obstore.list(self._store, below or None, chunk_size=_AT_ONCE):
                TRAFFIC.count()
                yield from (_object(each) for each in page)

    def look(self, path: str = "") -> Object | None:
        """What the store tells of one object; None if there is none.

        Raises:
            OSError: the store cannot be asked.
        """
        import obstore

        TRAFFIC.count()
        try:
            with self._told(path):
                return _object(obstore.head(self._store, path))
        except FileNotFoundError:
            return None

    def read(self, path: str) -> tuple[bytes, str]:
        """Read an object; returns its content and its ETag.

        Raises:
            FileNotFoundError: there is none.
            OSError: the store cannot be asked.
        """
        import obstore

        with self._told(path):
            found = obstore.get(self._store, path)
            content = bytes(found.bytes())
        TRAFFIC.count(read=len(content))
        return content, found.meta["e_tag"] or ""

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

    def download(self, path: str, target: Path) -> None:
        """Copy an object into a file, which appears whole or not at all.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be read, or not be written here.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole(target) as written, written.open("wb") as file:
            for piece in self.pieces(path):
                file.write(piece)

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
        condition = "create" if new else {"e_tag": instead_of} if instead_of else "overwrite"
        try:
            return self._put(path, content, condition)
        except ConflictError:
            with suppress(FileNotFoundError):
                there, etag = self.read(path)
                if there == (content.read_bytes() if isinstance(content, Path) else content):
                    return etag
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
            )
        return done["e_tag"] or ""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; those that are gone already are no error.

        Raises:
            OSError: they cannot be deleted.
        """
        import obstore

        for first in range(0, len(paths), _AT_ONCE):
            TRAFFIC.count()
            with self._told(""):
                obstore.delete(self._store, list(paths[first : first + _AT_ONCE]))

    def file_system(self) -> Any:
        """What lets a DuckDB connection read URLs of this kind without an extension."""
        from obstore.fsspec import FsspecStore

        scheme = self.url.partition("://")[0]
        return FsspecStore(scheme, **_settings(self.url))  # type: ignore[call-overload]

    @contextmanager
    def _told(self, path: str) -> Generator[None]:
        """Tell a store's errors as the system's, in one line, of an object below the URL."""
        from obstore.exceptions import (
            AlreadyExistsError,
            BaseError,
            PermissionDeniedError,
            PreconditionError,
            UnauthenticatedError,
        )

        where = "/".join(filter(None, (self.url.rstrip("/"), path)))
        try:
            yield
        except (AlreadyExistsError, PreconditionError) as error:
            raise ConflictError(f"{where} was changed by another writer") from error
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", where) from error
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
            reason = f"access is denied ({_reason(error)}); look at the credentials and rights"
            raise PermissionError(errno.EACCES, reason, where) from error
        except BaseError as error:
            reason = _reason(error)
            if any(sign in str(error) for sign in _LASTING):
                raise FileNotFoundError(errno.ENOENT, reason, where) from error
            raise OSError(errno.EIO, reason, where) from error


def _object(told: Mapping[str, Any]) -> Object:
    modified = round(told["last_modified"].timestamp() * 1e9)
    etag, version = told["e_tag"] or "", told["version"] or ""
    return Object(told["path"], told["size"], modified, etag, version)


def _reason(error: BaseException) -> str:
    """What a store says, without its XML, its own names for things, and any query of a URL."""
    text = re.sub(r"\?[^\s:)\"]*", "", str(error).partition("\nDebug")[0])
    code = re.search(r"<Code>(\w+)</Code>.*?<Message>(.*?)</Message>", text, re.DOTALL)
    told = f"{code[1]}: {code[2]}" if code else text.partition(" source: ")[0]
    return one_line(told)[:300]


def _settings(url: str) -> dict[str, Any]:
    """How to reach a store, as far as the environment does not say it to obstore itself."""
    settings: dict[str, Any] = {}
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    if url.startswith("http://") or plain:
        settings["client_options"] = {"allow_http": True}
    if url.startswith("s3://") and "AWS_ACCESS_KEY_ID" not in os.environ:
        settings |= _profile()
    return settings


def _profile() -> dict[str, Any]:
    """The credentials of the user's profile or machine, by boto3 where that is installed."""
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        if "AWS_PROFILE" in os.environ:
            raise StorageError("AWS_PROFILE needs boto3: pip install 'kp-batch[s3]'") from error
        return {}
    session = Session()
    if session.get_credentials() is None:
        return {}
    return {"credential_provider": Boto3CredentialProvider(session)}
