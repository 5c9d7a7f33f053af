"""Lists the files of an archive in buckets, and reads them; see `folders`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from kp_batch.archive.folders import DELTA_LOG, Glob, SourceFile, fault_of, folders_above
from kp_batch.archive.formats import BY_ENDING
from kp_batch.errors import ArchiveError
from kp_batch.storage.store import Object, Store, bucket_and_path
from kp_batch.storage.urls import is_web

_ENDINGS = tuple(BY_ENDING)


def list_files(url: str, *, every: bool = False) -> Iterator[SourceFile]:
    """As `folders.list_files`, of a URL.

    Raises:
        ArchiveError: the URL is a warehouse, or a Delta table.
        OSError: it cannot be listed.
    """
    bucket, path = bucket_and_path(url)
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
        folder, has_log, _ = f"/{path}".partition(f"/{DELTA_LOG}/")  # also that of the bucket
        parent, _, name = path.rpartition("/")
        if fault := fault_of({DELTA_LOG}) if has_log else fault_of({name}):
            faults.setdefault(folder.removeprefix("/") if has_log else parent, fault)
    outermost: dict[str, str] = {}
    for folder in sorted(faults):
        if outermost.keys().isdisjoint(folders_above(folder)):
            outermost[folder] = faults[folder]
    return outermost


def _source(bucket: Store, obj: Object) -> SourceFile:
    return SourceFile(_url(bucket, obj.path), obj.size, obj.mtime_ns, obj.etag)


def _url(bucket: Store, path: str) -> str:
    return f"{bucket.url}/{path}"
