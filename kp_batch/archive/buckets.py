"""Lists the files of an archive in buckets, and reads them; see `folders`."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from kp_batch.archive.folders import (
    TABLE_FOLDERS,
    Glob,
    SourceFile,
    fault_by,
    folders_above,
    table_fault,
)
from kp_batch.archive.formats import BY_ENDING
from kp_batch.errors import ArchiveError
from kp_batch.storage.store import Object, Store, bucket_and_path
from kp_batch.storage.urls import is_web

_ENDINGS = tuple(BY_ENDING)


def list_files(url: str, *, every: bool = False) -> Iterator[SourceFile]:
    """As `folders.list_files`, of a URL.

    Raises:
        ArchiveError: the URL is a warehouse, or in a table of a format such as Delta.
        OSError: it cannot be listed.
    """
    bucket, path = bucket_and_path(url)
    if not is_web(url):
        _check_above(bucket, Glob.of(path).folder)
    if path and not path.endswith("/") and (obj := bucket.head(path)):
        yield _source(bucket, obj)
    elif not is_web(url):
        yield from _glob_files(bucket, Glob.of(path), every=every)


def stat_file(url: str) -> SourceFile:
    """The file with its present size, time and version.

    Raises:
        OSError: the file is gone.
    """
    bucket, path = bucket_and_path(url)
    obj = bucket.head(path)
    if obj is None:
        raise FileNotFoundError(f"{url} is gone")
    return _source(bucket, obj)


def open_copy(url: str, copy: str) -> BinaryIO:
    """Open a local copy of a file, as readers of formats seek.

    Args:
        url: of the file.
        copy: the path of the copy, which is made if it is missing; empty for a temporary copy.

    Raises:
        OSError: it cannot be read.
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
    """Refuse what is in the folder of a table; a bucket itself is hardly one."""
    for folder in folders_above(path.strip("/")):
        for inner in TABLE_FOLDERS:
            with suppress(PermissionError):  # whoever may read some folders may not list others
                names = (obj.path for obj in bucket.objects(f"{folder}/{inner}"))
                if fault := next(filter(None, (table_fault(inner, name) for name in names)), ""):
                    raise ArchiveError(f"cannot look into '{_url(bucket, folder)}': {fault}")


def _glob_files(bucket: Store, glob: Glob, *, every: bool) -> Iterator[SourceFile]:
    """The files of a glob, and folders with a fault that it can match files in."""
    folder = glob.folder.strip("/")
    objects = list(bucket.objects(folder))
    faulty = _faulty_folders(obj.path for obj in objects)
    if folder in faulty:
        raise ArchiveError(f"cannot look into '{_url(bucket, folder)}': {faulty[folder]}")
    for path, fault in faulty.items():
        below = _below(folder, path)
        if (every or not _is_hidden(below)) and (not glob.pattern or glob.leads_to(below)):
            yield SourceFile(_url(bucket, path), 0, 0, fault=fault)
    for obj in objects:
        below = _below(folder, obj.path)
        if (
            (every or (obj.path.lower().endswith(_ENDINGS) and not _is_hidden(below)))
            and faulty.keys().isdisjoint(folders_above(obj.path))
            and glob.covers(below)
        ):
            yield _source(bucket, obj)


def _below(folder: str, path: str) -> tuple[str, ...]:
    return tuple(path.removeprefix(folder).strip("/").split("/"))


def _is_hidden(below: tuple[str, ...]) -> bool:
    return any(part.startswith((".", "_")) for part in below)


def _faulty_folders(paths: Iterable[str]) -> dict[str, str]:
    """The outermost folders that must not be read, with their faults."""
    faults: dict[str, str] = {}
    for path in paths:
        folder, fault = fault_by(path)
        if fault:
            faults.setdefault(folder, fault)
    outermost: dict[str, str] = {}
    for folder in sorted(faults):
        if outermost.keys().isdisjoint(folders_above(folder)):
            outermost[folder] = faults[folder]
    return outermost


def _source(bucket: Store, obj: Object) -> SourceFile:
    return SourceFile(_url(bucket, obj.path), obj.size, obj.mtime_ns, obj.etag)


def _url(bucket: Store, path: str) -> str:
    return f"{bucket.url}/{path}"
