"""Looks through buckets for the files of an archive, and reads them; see `folders`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from kp_batch.archive.folders import DELTA_LOG, Glob, SourceFile, fault_of, folders_above
from kp_batch.archive.formats import BY_ENDING
from kp_batch.errors import ArchiveError
from kp_batch.files import atomic_write
from kp_batch.storage.store import Object, Store, bucket_and_path
from kp_batch.storage.urls import is_web

_ENDINGS = tuple(BY_ENDING)


def list_files(url: str) -> Iterator[SourceFile]:
    """The files that a URL gives; of a folder or a glob, those with a known ending.

    Raises:
        ArchiveError: the URL is a warehouse, or a Delta table.
        OSError: it cannot be looked at.
    """
    bucket, path = bucket_and_path(url)
    if path and not path.endswith("/") and (found := bucket.head(path)):
        yield _source(bucket, found)
    elif not is_web(url):
        yield from _listed(bucket, _glob(path), every=False)


def list_all_files(url: str) -> Iterator[SourceFile]:
    """As `list_files`, all objects: those that are hidden, and with any name and ending, too."""
    bucket, path = bucket_and_path(url)
    if path and not path.endswith("/") and (found := bucket.head(path)):
        yield _source(bucket, found)
    elif not is_web(url):
        yield from _listed(bucket, _glob(path), every=True)


def full_url(url: str) -> str:
    """The URL as its files' paths begin."""
    bucket, path = bucket_and_path(url)
    return _url(bucket, path)


def stat_file(url: str) -> SourceFile:
    """The file with its present size, time and ETag.

    Raises:
        OSError: the file is gone.
    """
    bucket, path = bucket_and_path(url)
    found = bucket.head(path)
    if found is None:
        raise FileNotFoundError(f"{url} is gone")
    return _source(bucket, found)


def open_copy(url: str, copy: str) -> BinaryIO:
    """Open a copy of a file: formats seek in it.

    Args:
        url: of the file.
        copy: where the copy is, or is put; empty for a temporary one.

    Raises:
        OSError: it cannot be read.
    """
    if copy:
        if not Path(copy).exists():
            with atomic_write(Path(copy)) as path, path.open("wb") as file:
                _fetch(url, file)
        return Path(copy).open("rb")
    temporary = cast("BinaryIO", TemporaryFile())  # noqa: SIM115 (the caller closes it)
    _fetch(url, temporary)
    temporary.seek(0)
    return temporary


def _fetch(url: str, file: BinaryIO) -> None:
    bucket, path = bucket_and_path(url)
    file.writelines(bucket.pieces(path))


def _glob(path: str) -> Glob:
    """The glob of a path, or its folder: a glob with an empty pattern."""
    return Glob.of(path) or Glob(path.rstrip("/"), "")


def _listed(bucket: Store, glob: Glob, *, every: bool) -> Iterator[SourceFile]:
    """The files that a glob gives."""
    folder = glob.folder.strip("/")
    objects = list(bucket.objects(folder))
    closed = _closed(each.path for each in objects)
    if folder in closed:
        raise ArchiveError(f"cannot look into '{_url(bucket, folder)}': {closed[folder]}")
    for path, fault in closed.items():
        below = _below(folder, path)
        if (every or not _is_hidden(below)) and (not glob.pattern or glob.leads_to(below)):
            yield SourceFile(_url(bucket, path), 0, 0, fault=fault)
    for each in objects:
        below = _below(folder, each.path)
        if (
            (every or (each.path.lower().endswith(_ENDINGS) and not _is_hidden(below)))
            and closed.keys().isdisjoint(folders_above(each.path))
            and _is_meant(glob, below)
        ):
            yield _source(bucket, each)


def _below(folder: str, path: str) -> tuple[str, ...]:
    return tuple(path.removeprefix(folder).strip("/").split("/"))


def _is_hidden(below: tuple[str, ...]) -> bool:
    return any(part.startswith((".", "_")) for part in below)


def _is_meant(glob: Glob, below: tuple[str, ...]) -> bool:
    """Whether the glob matches the path, or a folder that it stands in."""
    ends = range(1, len(below) + 1)
    return not glob.pattern or any(glob.matches(below[:end]) for end in ends)


def _closed(paths: Iterable[str]) -> dict[str, str]:
    """The outermost folders that must not be read, and why."""
    found: dict[str, str] = {}
    for path in paths:
        folder, has_log, _ = path.partition(f"/{DELTA_LOG}/")
        parent, _, name = path.rpartition("/")
        if fault := fault_of({DELTA_LOG}) if has_log else fault_of({name}):
            found.setdefault(folder if has_log else parent, fault)
    closed: dict[str, str] = {}
    for folder in sorted(found):
        if closed.keys().isdisjoint(folders_above(folder)):
            closed[folder] = found[folder]
    return closed


def _source(bucket: Store, found: Object) -> SourceFile:
    return SourceFile(_url(bucket, found.path), found.size, found.mtime_ns, found.etag)


def _url(bucket: Store, path: str) -> str:
    return f"{bucket.url}/{path}"
