"""Lists of data files: immutable, one for each table and month, shared by manifests.

An unchanged list is stored once, however many manifests name it, and opening a manifest never reads
another one. The name of a list is a digest of its content, which begins with its writer. So no two
writers write the same list, and none removes a list that another has written.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from kp_batch.errors import WarehouseError
from kp_batch.files import atomic_write
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.layout import Layout

_PATH = re.compile(r"(?:\w+=(\d{4}-\d\d-\d\d)/)?[\w-]+\.parquet")


@dataclass(frozen=True, order=True)
class DataFile:
    """A file in a table's folder.

    Args:
        path: the path relative to the table's folder.
        rows: the number of rows.
        size: the size in bytes.
        partition: the value that all of its rows have; None if the table has no partitions.
    """

    path: str
    rows: int
    size: int
    partition: date | None


Files = tuple[DataFile, ...]
Located = tuple[tuple[DataFile, str], ...]  # texts: making thousands of paths takes long


def month_of(day: date) -> str:
    """Return the month of a day, as manifests name it: 2026-03."""
    return day.isoformat()[:7]


def write_list(warehouse: Path, writer: str, files: Iterable[DataFile]) -> str:
    """Write a list for a candidate, whose name is the writer.

    Returns:
        Its name: 32 hex digits of the SHA-256 of its content.
    """
    entries = sorted((file.path, file.rows, file.size) for file in files)
    content = json.dumps([writer, *entries], separators=(",", ":")).encode()
    name = _name_of(content)
    path = Layout(Layout(warehouse).candidate).file_list(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as written:
        written.write_bytes(content)
    return name


def read_list(warehouse: Path, name: str) -> Files:
    """Read a list of a published manifest or a candidate; the files are sorted by path.

    Raises:
        WarehouseError: the list is gone or damaged.
    """
    return _read(_path_of(warehouse, name))


def located(warehouse: Path, root: Path, table: str, name: str) -> Located:
    """Return the files of a list and where they are, sorted by their paths in the table's folder.

    Files that a candidate adds are in its own folder until it is published.

    Args:
        warehouse: the warehouse's folder.
        root: the same folder, from which the paths are made.
        table: the table.
        name: the list's name.

    Raises:
        WarehouseError: the list is gone or damaged.
    """
    folder, path = Layout(root).table(table), Layout(warehouse).file_list(name)
    if path.exists():
        return _published(folder, path)
    own, files = Layout(Layout(root).candidate).table(table), read_list(warehouse, name)
    both = ((file, own / file.path, folder / file.path) for file in files)
    return tuple((file, str(new if new.exists() else published)) for file, new, published in both)


@lru_cache(maxsize=1024)  # as below
def _published(folder: Path, path: Path) -> Located:
    return tuple((file, f"{folder}/{file.path}") for file in _read(path))


def _path_of(warehouse: Path, name: str) -> Path:
    """Return the path of a list in the warehouse, or else in the candidate's folder."""
    layout = Layout(warehouse)
    published = layout.file_list(name)
    return published if published.exists() else Layout(layout.candidate).file_list(name)


@lru_cache(maxsize=1024)  # ten years of days have about 500 lists, which never change
def _read(path: Path) -> Files:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise _lost(path, "gone") from error
    if _name_of(content) != path.stem:
        raise _lost(path, "damaged")
    try:
        return tuple(_file_of(*entry) for entry in json.loads(content)[1:])
    except (ValueError, TypeError, RecursionError) as error:
        raise _lost(path, "damaged") from error


def _lost(path: Path, how: str) -> WarehouseError:
    root = path.parents[2]
    return WarehouseError(
        f"the list of files {path.name} in {shown(root)} is {how}; restore it from a copy, or run "
        "the archive into a new folder",
        code="file_gone" if how == "gone" else "damaged",
    )


def _file_of(path: str, rows: Any, size: Any) -> DataFile:
    """Read a file's entry in a list, which may come from anybody."""
    found = _PATH.fullmatch(path)
    if not (found and all(type(count) is int and count >= 0 for count in (rows, size))):
        raise ValueError("a file that no run writes")
    return DataFile(path, rows, size, date.fromisoformat(found[1]) if found[1] else None)


def _name_of(content: bytes) -> str:
    return sha256(content).hexdigest()[:32]
