"""List, read and write the objects below a URL; writes can be conditional.

Errors of stores are raised as an OSError, with one line of text.
"""

import errno
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, cached_property
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kp_batch.errors import KpBatchError, StorageError
from kp_batch.files import atomic_write
from kp_batch.stopping import parts_in_threads, raise_if_unwanted
from kp_batch.storage.urls import check_url
from kp_batch.text import one_line, size_of

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_PIECE = 8 << 20  # bytes in memory at once
AT_ONCE = 1_000  # objects of one request that lists or deletes
MAX_PUT_BYTES = 5_000 << 20  # that one request may store: Azure's limit; S3's is 5 GiB
_PARALLEL = 16  # objects that are transferred at once
# A request may last as long as bytes keep coming; obstore's default is 30 s for all of it. A
# request without an answer is not retried by obstore: its retries would take three minutes each.
READ_TIMEOUT_S = 60
_LONGEST = "1h"
# Lasting errors for which obstore has no class.
_LASTING = ("NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "InvalidAccessKeyId")
_NO_ANSWER = "kind: Timeout"
_METADATA = "169.254.169.254"  # the service that gives a cloud's machine its credentials

T = TypeVar("T")


class ConflictError(KpBatchError):
    """The condition of a write failed: another writer changed the object."""


@dataclass(frozen=True, order=True)
class Object:
    """The metadata of an object."""

    path: str  # below the store's URL; empty for the URL's own object
    size: int  # bytes
    mtime_ns: int
    etag: str  # changes with the content; empty if the store has none
    version: str = ""  # if the store keeps older versions

    @classmethod
    def of(cls, meta: Mapping[str, Any], path: str | None = None) -> Self:
        """Take obstore's metadata, and the path where obstore may not know it."""
        modified = round(meta["last_modified"].timestamp() * 1e9)
        etag, version = _bare(meta["e_tag"]), meta["version"] or ""
        return cls(meta["path"] if path is None else path, meta["size"], modified, etag, version)


@cache  # a store keeps its connections
def store_at(url: str) -> "Store":
    """The store of a URL."""
    check_url(url)
    return Store(url)


def bucket_and_path(url: str) -> tuple["Store", str]:
    """Return the bucket (or the web server) of a URL, and the path in it."""
    scheme, _, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    check_url(url)
    return store_at(f"{scheme}://{bucket}"), path


@dataclass(frozen=True)
class Store:
    """The objects below a URL.

    Args:
        url: URL of a bucket, or of a path in it; see `check_url`.
    """

    url: str

    @cached_property
    def _store(self) -> "ObjectStore":
        from obstore.store import from_url

        with self._errors_of(""):
            return from_url(self.url, **_settings_of(self.url))

    def objects(self, below: str = "") -> Iterator[Object]:
        """List all objects below a folder, in pages, in the order of their paths.

        Raises:
            OSError: the request failed.
        """
        with self._errors_of(below):
            for page in self._store.list(below or None, chunk_size=AT_ONCE):
                yield from (Object.of(meta) for meta in page)

    def head(self, path: str = "") -> Object | None:
        """Return the metadata of one object; None if it does not exist.

        Raises:
            OSError: the request failed.
        """
        try:
            with self._errors_of(path):
                return Object.of(self._store.head(path), path)
        except FileNotFoundError:
            return None

    def read(self, path: str) -> tuple[bytes, Object]:
        """Read an object; returns its content and its metadata.

        Raises:
            FileNotFoundError: there is no such object.
            OSError: the request failed.
        """
        with self._errors_of(path):
            answer = self._store.get(path)
            content = bytes(answer.bytes())
        return content, Object.of(answer.meta, path)

    def beginning(self, path: str, size: int) -> bytes:
        """Read the first `size` bytes of an object, which must have as many.

        Raises:
            FileNotFoundError: there is no such object.
            OSError: the request failed.
        """
        with self._errors_of(path):
            return bytes(self._store.get_range(path, start=0, length=size))

    def pieces(self, path: str = "") -> Iterator[bytes]:
        """Read an object piece by piece.

        Raises:
            FileNotFoundError: there is no such object.
            OSError: the request failed, or the transfer stopped.
        """
        with self._errors_of(path):
            for piece in self._store.get(path).stream(min_chunk_size=_PIECE):
                raise_if_unwanted()
                yield bytes(piece)

    def download(self, path: str, target: Path, mtime_ns: int | None = None) -> None:
        """Copy an object into a file, atomically; its modification time may be given.

        Raises:
            FileNotFoundError: there is no such object.
            OSError: the object cannot be read, or the file cannot be written.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as written, written.open("wb") as file:
            for piece in self.pieces(path):
                file.write(piece)
            file.flush()
            if mtime_ns is not None:
                os.utime(written, ns=(mtime_ns, mtime_ns))

    def write(self, path: str, content: bytes | Path, *, instead_of: str | None = None) -> str:
        """Write an object, atomically.

        If an answer is lost, obstore tries again, and the condition fails because the object is
        already written. This is not reported as a conflict.

        Args:
            path: path of the object.
            content: bytes, or a file.
            instead_of: ETag of the object to replace. If empty, no object may exist yet. None
                replaces any object, or creates one.

        Returns:
            The new ETag.

        Raises:
            ConflictError: the condition failed; nothing was written.
            StorageError: there is a condition, and the object is larger than one request may store.
            OSError: the object cannot be written.
        """
        condition = {"e_tag": f'"{instead_of}"'} if instead_of else "create"
        if instead_of is None:
            condition = "overwrite"
        try:
            return self.put_once(path, content, condition)
        except ConflictError:
            with suppress(FileNotFoundError):
                stored, obj = self.read(path)
                if stored == (content.read_bytes() if isinstance(content, Path) else content):
                    return obj.etag
            raise

    def put_once(self, path: str, content: bytes | Path, condition: Any) -> str:
        """Store an object in one request; `write` handles an answer that was lost."""
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        # A condition holds for one request, so a write with one is not cut into parts.
        in_parts = condition == "overwrite" and size > _PIECE
        if not in_parts and size > MAX_PUT_BYTES:
            raise StorageError(
                f"{self.url.rstrip('/')}/{path} would take {size_of(size)}, but a bucket accepts "
                f"at most {size_of(MAX_PUT_BYTES)} in one write; use a local folder"
            )
        try:
            with self._errors_of(path):
                answer = self._store.put(
                    path,
                    content,
                    mode=condition,
                    use_multipart=in_parts,
                    chunk_size=_PIECE,
                    max_concurrency=1,  # as many objects are transferred at once
                )
        except FileNotFoundError:  # S3's error if there is no object to replace
            if not isinstance(condition, dict):
                raise
            raise ConflictError(f"{self.url}/{path} was removed by another writer") from None
        return _bare(answer["e_tag"])

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored.

        Raises:
            OSError: the objects cannot be deleted.
        """
        for first in range(0, len(paths), AT_ONCE):
            batch = list(paths[first : first + AT_ONCE])
            try:
                with self._errors_of(""):
                    self._store.delete(batch)
            except FileNotFoundError:  # Azure's error if one of them is missing
                for path in batch:
                    with suppress(FileNotFoundError), self._errors_of(path):
                        self._store.delete(path)

    def file_system(self) -> Any:
        """A file system that lets DuckDB read URLs of this scheme without an extension."""
        from obstore.fsspec import FsspecStore

        scheme = self.url.partition("://")[0]
        return FsspecStore(scheme, **_settings_of(self.url))  # type: ignore[call-overload]

    def _errors_of(self, path: str) -> AbstractContextManager[None]:
        return translate_errors("/".join(filter(None, (self.url.rstrip("/"), path))))


def run_parallel(work: Callable[[T], object], parts: Iterable[T]) -> None:
    """Call a function for many objects in parallel; after an error, begin no further calls."""
    with parts_in_threads(_PARALLEL) as threads:
        futures = [threads.begin(work, part) for part in parts]
        left = {*futures}
        while left:  # wakes up every second, to notice an interrupt
            done, left = wait(left, 1.0, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()


def answered_within(seconds: float, work: Callable[[], T]) -> T:
    """Call a function that may never return, and stop waiting after some seconds.

    The call then continues in its thread.

    Raises:
        TimeoutError: there was no result in time.
        Exception: the function's own error.
    """
    ended: Future[T] = Future()

    def do() -> None:
        try:
            ended.set_result(work())
        except BaseException as error:  # noqa: BLE001 (it is raised by who waits)
            ended.set_exception(error)

    Thread(target=do, daemon=True).start()
    try:
        return ended.result(seconds)
    except TimeoutError:
        if ended.done():  # the function's own error
            raise
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None


@contextmanager
def translate_errors(url: str) -> Generator[None]:
    """Raise a store's error as an OSError about the URL, or as a ConflictError.

    The original error is not chained: its text may quote the request, with a token.
    """
    from obstore.exceptions import (
        AlreadyExistsError,
        BaseError,
        PermissionDeniedError,
        PreconditionError,
        UnauthenticatedError,
    )

    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise ConflictError(f"{url} was changed by another writer") from None
    except FileNotFoundError as error:
        reason = _lasting(error) or "there is no such object"
        raise FileNotFoundError(errno.ENOENT, reason, url) from None
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
        reason = f"access is denied ({_reason(error)}); look at the credentials and rights"
        raise PermissionError(errno.EACCES, reason, url) from None
    except BaseError as error:
        if _NO_ANSWER in str(error):
            reason = (
                f"there was no answer for {READ_TIMEOUT_S} s; look at the address and the network"
            )
            raise TimeoutError(errno.ETIMEDOUT, reason, url) from None
        reason = _reason(error)
        if _METADATA in str(error):  # asked for credentials if the environment has none
            reason = "no credentials were found; set those of that store, or a profile"
            raise PermissionError(errno.EACCES, reason, url) from None
        if lasting := _lasting(error):
            raise FileNotFoundError(errno.ENOENT, lasting, url) from None
        raise OSError(errno.EIO, reason, url) from None


def _lasting(error: BaseException) -> str | None:
    """Return the reason of an error that a retry does not remove; None for any other error."""
    if any(sign in str(error) for sign in _LASTING):
        return f"{_reason(error)}; look at the URL and the credentials"
    return None


def _reason(error: BaseException) -> str:
    """The message of a store's error, without XML, internal names, and the queries of URLs."""
    text = re.sub(r"\?[^\s:)\"]*", "", str(error).partition("\nDebug")[0])
    code = re.search(r"<Code>(\w+)</Code>.*?<Message>(.*?)</Message>", text, re.DOTALL)
    text = f"{code[1]}: {code[2]}" if code else text.partition(" source: ")[0]
    return one_line(text)[:300]


def _bare(etag: str | None) -> str:
    """Return an ETag without quotes: Azure adds them in some answers, and not in lists."""
    return (etag or "").strip('"')


def _settings_of(url: str) -> dict[str, Any]:
    """Return the settings of a store that obstore does not read from the environment itself.

    Raises:
        StorageError: the settings need a package that is not installed.
    """
    client: dict[str, Any] = {"timeout": _LONGEST, "read_timeout": f"{READ_TIMEOUT_S}s"}
    retries = {"retry_timeout": timedelta(seconds=READ_TIMEOUT_S)}
    settings: dict[str, Any] = {"client_options": client, "retry_config": retries}
    if url.startswith("http://") or os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        client["allow_http"] = True
    if url.startswith("s3://") and "AWS_ACCESS_KEY_ID" not in os.environ:
        settings |= _profile()
    return settings


def _profile() -> dict[str, Any]:
    """Return the credentials of the user's profile or machine, by boto3 if that is installed."""
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
