"""Finds the files of an archive, from the names that a user gives it."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from kp_batch.archive import buckets, folders
from kp_batch.archive.file_formats import ENDINGS
from kp_batch.archive.folders import (
    EXCLUDED,
    IS_WAREHOUSE,
    Glob,
    SourceFile,
    excludes_nothing,
    folders_above,
)
from kp_batch.errors import ArchiveError, KpBatchError, is_of_machine, is_passing
from kp_batch.files import open_regular
from kp_batch.stopping import raise_if_unwanted
from kp_batch.storage.urls import is_url, local_name
from kp_batch.text import one_line

CUT = "-cut"
_PIECE = 1 << 20
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # null in a folder's name


def discover(
    archive: Iterable[str],
    warehouse: Path | None = None,
    left_out: Callable[[str], None] = lambda _: None,
    is_excluded: Callable[[str], bool] = excludes_nothing,
    was_read: Callable[[str], bool] = lambda _: False,
) -> list[SourceFile]:
    """Return the files of an archive, each once, in the order of their paths' UTF-8 bytes.

    Args:
        archive: files with any ending; folders and globs, of which *.parquet, *.pq, *.jsonl and
            *.ndjson files are taken unless they are hidden; or URLs of these.
        warehouse: a folder whose files are left out, wherever it is.
        left_out: takes the path of each other warehouse inside; its files are left out as well.
        is_excluded: whether a file or a folder is left out; an excluded folder is not listed.
        was_read: whether a name had files the last time.

    Raises:
        ArchiveError: a name has no file, cannot be listed, is a warehouse or a table, or is
            not UTF-8; or all files are excluded.
        Exception: the disk or the network failed, and a retry may succeed; see `is_passing`.
    """
    own = os.path.realpath(warehouse) if warehouse else None
    files: dict[bytes, SourceFile] = {}  # by bytes, because a path may not be UTF-8
    for name in archive:
        try:
            absolute(name).encode()  # the tables contain it, too
            found = (file.with_text_name for file in _list(name, own, is_excluded))
            listed = {file.path.encode(): file for file in found}
        except KpBatchError:
            raise
        except Exception as error:  # file systems raise errors of many kinds
            if is_passing(error) or is_of_machine(error):
                raise
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            message = f"cannot read {name!r}: {one_line(reason)}"
            raise ArchiveError(message, code="no_archive") from error
        if not listed:
            raise ArchiveError(_nothing_at(name, was_read=was_read(name)), code="no_archive")
        files |= listed
    kept = {
        key: file
        for key, file in files.items()
        if file.fault != EXCLUDED and not is_excluded(file.path)
    }
    if files and not kept:
        raise ArchiveError("all files of the archive are excluded; check the globs of --exclude")
    for file in kept.values():
        if file.fault == IS_WAREHOUSE:
            left_out(file.path)
    return [file for _, file in sorted(kept.items()) if file.fault != IS_WAREHOUSE]


def _nothing_at(name: str, *, was_read: bool) -> str:
    found = f"no Parquet or JSONL file at {name!r}"
    if was_read:
        remedy = "is that its bucket?" if is_url(name) else "is its disk mounted?"
        return f"{found}, which the last run read; {remedy} If it was moved, name its new place"
    return (
        f"{found}; name a file, a folder, a glob or a URL, with files that end with one of "
        f"{ENDINGS}"
    )


def open_file(path: str, copy: str = "") -> Any:  # digests and formats need more than BinaryIO
    """Open a file or a URL for reading bytes; for `copy`, see `SourceFile`.

    Raises:
        OSError: the file cannot be opened.
    """
    return buckets.open_copy(path, copy) if is_url(path) else open_regular(path)


def content_digest(source: SourceFile) -> str:
    """Return the digest of a file's content: its format, and the SHA-256 of its bytes in hex.

    If the file ends within a row, the digest ends with `CUT`.

    Raises:
        OSError: the file cannot be read.
    """
    with open_file(source.path, source.copy) as file:
        digest = _sha256(file)
        cut = CUT if source.format.is_cut(file) else ""
    return f"{source.format.name}-{digest}{cut}"


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        raise_if_unwanted()
        digest.update(piece)
    return digest.hexdigest()


def is_cut(file_id: str) -> bool:
    """Whether a file_id's content ends within a row; that row does not count."""
    return f"{CUT}-" in file_id


def has_content(source: SourceFile, file_id: str) -> bool:
    """Whether a file has the content of a file_id, for any version of the facts.

    Raises:
        OSError: the file cannot be read.
    """
    return file_id.startswith(f"{content_digest(source)}-")


def stat_file(path: str) -> SourceFile:
    """Return the file as it is now.

    Raises:
        OSError: the file is gone.
    """
    return buckets.stat_file(path) if is_url(path) else folders.stat_file(path)


def covers(name: str, file: Path) -> bool:
    """Whether an archive's name includes a file with any ending; its path must have no links."""
    if is_url(name):
        return False
    glob = _named(name)
    folder = Path(glob.folder).resolve()
    return file.is_relative_to(folder) and glob.covers(file.relative_to(folder).parts)


def is_outside(archive: Iterable[str], path: str) -> bool:
    """Whether a discovered file is in an archive only by a link that leads out of its names."""
    if is_url(path):
        return False
    file = Path(path).resolve()
    globs = (_named(name) for name in archive if not is_url(name))
    return not any(file.is_relative_to(Path(glob.folder).resolve()) for glob in globs)


def folders_named(archive: Iterable[str]) -> frozenset[str]:
    """Return the folders that an archive names, or that its globs begin with."""
    return frozenset(_named(name).folder.rstrip("/") for name in archive)


def _named(name: str) -> Glob:
    """Return what a name matches, with its absolute folder; a file's name matches that file."""
    if is_url(name):
        return Glob.of(name)
    path = absolute(name.removeprefix("file://"))
    return Glob(path) if Path(path).exists() else Glob.of(path)


def path_keys(folders: frozenset[str], path: str) -> str:
    """Return a file's Hive keys as JSON: from names of the folders above it, such as host=a.

    They are read as DuckDB and Polars do: a value may be escaped as in a URL, the outermost of
    equal keys counts, and `__HIVE_DEFAULT_PARTITION__` is null.

    Args:
        folders: folders of the archive; see `folders_named`.
        path: path of the file, as it was discovered.
    """
    return _keys_in(folders, path.rpartition("/")[0])


@lru_cache(1_024)  # files come in the order of their paths, many from one folder
def _keys_in(folders: frozenset[str], folder: str) -> str:
    values: dict[str, str | None] = {}
    below: dict[str, str | None] = {}  # the keys of the folders so far, from the nearest on
    for above in (folder, *folders_above(folder)):
        if above in folders:
            values = {**below}
        name = above.rpartition("/")[2]
        if name.count("=") == 1:
            key, _, value = name.partition("=")
            below[key] = None if value == _NO_VALUE else unquote(value)
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def _list(name: str, own: str | None, is_excluded: Callable[[str], bool]) -> Iterator[SourceFile]:
    if not name:
        raise ValueError("the name is empty")
    if is_url(name):
        return buckets.list_files(name)
    return folders.list_files(absolute(local_name(name)), own, is_excluded=is_excluded)


def in_full(name: str) -> str:
    """Return an archive's name that means the same in every folder; a URL stays unchanged."""
    local = name.removeprefix("file://")
    return local if "://" in local else absolute(local)


def absolute(path: str) -> str:
    """Return the absolute form of a local path, as files are named."""
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100 (it resolves x/..)
