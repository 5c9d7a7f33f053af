"""Lists and reads the files of an archive in buckets, as `folders` does for local ones."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from kp_batch.archive.folders import (
    MARKS_OF_TABLES,
    FolderEntry,
    Glob,
    SourceFile,
    folders_above,
    in_table,
    walk,
)
from kp_batch.storage.store import Object, Store, bucket_and_path
from kp_batch.storage.urls import is_web


def list_files(url: str, *, every: bool = False) -> Iterator[SourceFile]:
    """List the files of a URL; see `folders.list_files`.

    Raises:
        ArchiveError: the URL is a warehouse, or in a table.
        OSError: the URL cannot be listed.
    """
    bucket, path = bucket_and_path(url)
    glob = Glob.of(path)
    if not is_web(url):
        _check_above(bucket, glob.folder)
    if path and not path.endswith("/") and (obj := bucket.head(path)):
        yield _source(bucket, obj)
    elif not is_web(url):
        folder = glob.folder.strip("/")
        tree = _tree(bucket, folder)
        yield from walk(Glob(_url(bucket, folder), glob.pattern), tree.__getitem__, every=every)


def stat_file(url: str) -> SourceFile:
    """Return the file with its current size, time and version.

    Raises:
        OSError: the file is gone.
    """
    bucket, path = bucket_and_path(url)
    obj = bucket.head(path)
    if obj is None:
        raise FileNotFoundError(f"{url} is gone")
    return _source(bucket, obj)


def open_copy(url: str, copy: str) -> BinaryIO:
    """Open a local copy of a file, because readers of formats seek.

    Args:
        url: URL of the file.
        copy: path of the copy, created if it is missing; empty for a temporary copy.

    Raises:
        OSError: the file cannot be read.
    """
    bucket, path = bucket_and_path(url)
    if copy:
        if not Path(copy).exists():
            bucket.download(path, Path(copy))
        return Path(copy).open("rb")
    temporary = cast("BinaryIO", TemporaryFile())  # noqa: SIM115 (the caller closes it)
    temporary.writelines(bucket.pieces(path))
    temporary.seek(0)
    return temporary


def _check_above(bucket: Store, path: str) -> None:
    """Refuse a path in a table; a bucket itself is hardly ever one."""
    for folder in folders_above(path.strip("/")):
        with suppress(PermissionError):  # with rights for some folders, one may not list others
            for mark, ending in MARKS_OF_TABLES.items():
                if any(obj.path.endswith(ending) for obj in bucket.objects(f"{folder}/{mark}")):
                    raise in_table(_url(bucket, folder))


@dataclass(frozen=True)
class _Entry:
    """An object, or a folder, which is not an object."""

    name: str
    path: str
    object: SourceFile | None

    def is_folder(self, *, follows: bool) -> bool:  # noqa: ARG002 (a bucket has no links)
        return self.object is None

    def is_lost(self) -> bool:
        return False

    def source(self) -> SourceFile | None:
        return self.object


def _tree(bucket: Store, top: str) -> dict[str, list[FolderEntry]]:
    """Return what is in each folder from `top` on, by URL: a bucket only lists objects."""
    tree: dict[str, list[FolderEntry]] = {_url(bucket, top): []}

    def add(path: str, source: SourceFile | None) -> None:
        folder, _, name = path.rpartition("/")
        if _url(bucket, folder) not in tree:
            tree[_url(bucket, folder)] = []
            add(folder, None)
        tree[_url(bucket, folder)].append(_Entry(name, _url(bucket, path), source))

    for obj in bucket.objects(top):
        add(obj.path, _source(bucket, obj))
    return tree


def _source(bucket: Store, obj: Object) -> SourceFile:
    return SourceFile(_url(bucket, obj.path), obj.size, obj.mtime_ns, obj.etag)


def _url(bucket: Store, path: str) -> str:
    return f"{bucket.url}/{path}"
