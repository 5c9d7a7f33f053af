"""Delta tables: reads their versions, and commits new ones, which name data files.

A version is committed right before the manifest names it: see `publication`. The rows are read and
written elsewhere: see `snapshot` and `data_files`.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import polars as pl
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from kp_batch.errors import WarehouseError, explain_mendable, is_passing
from kp_batch.schemas import PARTITIONED_BY, TABLES, arrow_schema
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.data_files import DataFile, data_files
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import LAST_REMEDY

# The published version may be as old as the last successful run, so the log keeps all. It holds no
# statistics: their minima and maxima would be ids of traces that outlive the rows.
CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.dataSkippingNumIndexedCols": "0",
}


# The files of a table's version: their paths below its folder, as `DataFile` has them.
ENTRIES = pl.Schema({"path": pl.String, "rows": pl.Int64, "size": pl.Int64, "partition": pl.Date})


@dataclass(frozen=True)
class TableChange:
    """What a commit adds to a table, and removes from it."""

    added: tuple[DataFile, ...] = ()
    removed: frozenset[str] = frozenset()  # paths below the table's folder


def commit(warehouse: Path, name: str, change: TableChange, writer: str, version: int) -> None:
    """Commit a change of a table, whose files are in its folder.

    Args:
        warehouse: the folder of the tables.
        name: of the table.
        change: of its newest version.
        writer: is put into the log.
        version: that it will be; see `next_version`.

    Raises:
        FileNotFoundError: a file is gone.
        WarehouseError: another writer changed the table at the same time.
    """
    folder = Layout(warehouse).table(name)
    # Without retries: another writer's commit in between may never be published.
    properties = CommitProperties({"run_id": writer}, max_commit_retries=0)
    try:
        _commit(folder, name, change, properties)
        is_next = next_version(warehouse, name, version) == version + 1
    except CommitFailedError:
        is_next = False
    if not is_next:
        raise WarehouseError(
            f"another writer changed the table {name} of {shown(warehouse)} at the same time; "
            "nothing was published; run again"
        )


def next_version(warehouse: Path, name: str, published: int | None) -> int:
    """The version that the next commit of a table makes, whose published version this is."""
    log, version = Layout(warehouse).table(name) / "_delta_log", _following(published)
    while (log / f"{version:020d}.json").exists():
        version += 1
    return version


def _following(published: int | None) -> int:
    return 0 if published is None else published + 1


def restore(warehouse: Path, name: str, published: int | None) -> int | None:
    """Restore a table's published version, unless the newest one has its rows.

    A table that was never published loses its rows.

    Returns:
        The newest version, if the table is published.
    """
    if next_version(warehouse, name, published) == _following(published):
        return published
    folder = Layout(warehouse).table(name)
    table = DeltaTable(str(folder))
    if published is None:
        if removed := frozenset(_entries(table, name)["path"]):
            _commit(folder, name, TableChange(removed=removed), CommitProperties())
        return None
    if not _are_same(table, open_table(warehouse, name, published)):
        table.restore(published)
    return table.version()


def restore_all(warehouse: Path, tables: Mapping[str, int]) -> dict[str, int]:
    """Restore the published version of every table, for those who read one by itself.

    Returns:
        The newest version of each, which has the rows of the published one.
    """
    newest = {name: restore(warehouse, name, tables.get(name)) for name in TABLES}
    return {name: version for name, version in newest.items() if version is not None}


def _are_same(table: DeltaTable, other: DeltaTable | None) -> bool:
    """Whether two versions of a table have the same rows and columns."""
    if other is None or table.schema().fields != other.schema().fields:
        return False
    return {*table.file_uris()} == {*other.file_uris()}


def _commit(folder: Path, name: str, change: TableChange, properties: CommitProperties) -> None:
    schema = Schema.from_arrow(arrow_schema(TABLES[name]))
    added = [_addition(folder, name, file) for file in change.added]
    options: Any = {"partition_by": PARTITIONED_BY.get(name), "commit_properties": properties}
    if not DeltaTable.is_deltatable(str(folder)):
        create_table_with_add_actions(
            str(folder), schema, added, configuration=CONFIGURATION, **options
        )
        return
    table = DeltaTable(str(folder))
    gone = _entries(table, name).filter(pl.col("path").is_in(change.removed))
    if table.schema().fields == schema.fields:
        # Mode "overwrite" would also remove a file that is added once more.
        actions = [*added, *_removals(name, gone)]
        table.create_write_transaction(actions, "append", schema, **options)
    elif len(gone) == len(table.file_uris()):
        # Only this mode takes other columns, and all files with them.
        table.create_write_transaction([*added], "overwrite", schema, **options)
    else:
        raise ValueError(f"files of {name} have other columns than those that would stay")


def _addition(folder: Path, name: str, file: DataFile) -> AddAction:
    """The action that adds a file, with the number of its rows as the only statistics."""
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=_partition_values(name, file.partition),
        modification_time=int((folder / file.path).stat().st_mtime * 1000),
        data_change=True,
        stats=f'{{"numRecords":{file.rows}}}',
    )


def _removals(name: str, entries: pl.DataFrame) -> list[RemoveAction]:
    """The actions that remove files."""
    now = int(time.time() * 1000)
    return [
        RemoveAction(
            path,
            data_change=True,
            deletion_timestamp=now,
            size=size,
            partition_values=_partition_values(name, partition),
        )
        for path, size, partition in entries.select("path", "size", "partition").iter_rows()
    ]


def _partition_values(name: str, partition: date | None) -> dict[str, str | None]:
    return {PARTITIONED_BY[name]: str(partition)} if name in PARTITIONED_BY else {}


def open_table(warehouse: Path, name: str, version: int | None = None) -> DeltaTable | None:
    """Open a table at a version, by default its newest; None if there is no such table."""
    try:
        return DeltaTable(str(Layout(warehouse).table(name)), version=version)
    except TableNotFoundError:
        return None


def files_of(warehouse: Path, name: str, version: int | None) -> list[Path]:
    """List the Parquet files of a table's version, sorted by path; none if `version` is None.

    Raises:
        WarehouseError: the table or that version is gone, or names a file outside its folder.
    """
    folder = Layout(warehouse).table(name)
    return sorted(logged_file(folder, path) for path in entries(warehouse, name, version)["path"])


def needed_files(warehouse: Path, tables: Mapping[str, int]) -> set[Path]:
    """All files that versions of tables need: those of the rows, and those of the logs.

    Raises:
        WarehouseError: a version is gone, or names a file outside its folder.
    """
    files: set[Path] = set()
    for name, version in tables.items():
        log, last = Layout(warehouse).table(name) / "_delta_log", f"{version:020d}.json"
        files.update(files_of(warehouse, name, version))
        # Without `_last_checkpoint`, which readers do without.
        files.update(path for path in log.glob("[0-9]*") if path.name <= last)
    return files


def entries(warehouse: Path, name: str, version: int | None) -> pl.DataFrame:
    """The files of a table's version: rows of `ENTRIES`; none if it is None.

    Raises:
        WarehouseError: the table or that version is gone, or cannot be read.
    """
    if version is None:
        return ENTRIES.to_frame()
    commit = Layout(warehouse).table(name) / "_delta_log" / f"{version:020d}.json"
    try:
        status = commit.stat()
    except OSError:  # the table is gone, or its log is a checkpoint there
        return _read_entries(warehouse, name, version)
    identity = (status.st_dev, status.st_ino, status.st_mtime_ns)
    return _cached_entries(warehouse, name, version, identity)


def _read_entries(warehouse: Path, name: str, version: int) -> pl.DataFrame:
    try:
        table = open_table(warehouse, name, version)
    except DeltaError as error:
        if is_passing(error) or explain_mendable(error):
            raise
        raise WarehouseError(
            f"version {version} of the table {name} cannot be read from {shown(warehouse)}: "
            f"{error}; {LAST_REMEDY}"
        ) from error
    if table is None:
        raise WarehouseError(f"the table {name} is gone from {shown(warehouse)}; {LAST_REMEDY}")
    return _entries(table, name)


@lru_cache(maxsize=32)  # a run asks some ten times; the commit's file identifies a version
def _cached_entries(
    warehouse: Path, name: str, version: int, _commit: tuple[int, int, int]
) -> pl.DataFrame:
    return _read_entries(warehouse, name, version)


def _entries(table: DeltaTable, name: str) -> pl.DataFrame:
    files = pl.DataFrame(table.get_add_actions(flatten=True))
    if files.is_empty():  # which has no columns of partitions
        return ENTRIES.to_frame()
    by = PARTITIONED_BY.get(name)
    columns = {
        "path": pl.col("path"),
        "rows": pl.col("num_records"),
        "size": pl.col("size_bytes"),
        "partition": pl.col(f"partition.{by}") if by else pl.lit(None),
    }
    return files.select(**columns).cast(ENTRIES)


def logged_file(folder: Path, path: str) -> Path:
    """The file of a table that its Delta log names; a WarehouseError if it leads out of there."""
    name = PurePosixPath(unquote(path))
    if name.is_absolute() or ".." in name.parts:
        raise WarehouseError(
            f"the Delta log of {folder.name} names a file outside its folder ({path!r}), as no run "
            "does; do not use that warehouse, or restore it from a copy"
        )
    return folder / name


def changes_of(folder: Path, text: str = "") -> Iterator[tuple[int, set[Path], set[Path]]]:
    """Read from a table's log the files that each version adds and removes, oldest first.

    Only files whose entries have a text count, that of a partition say. Opening the table at each
    version would take quadratic time.

    Raises:
        WarehouseError: the log lacks a version, or names a file outside the table's folder.
    """
    logs = sorted((folder / "_delta_log").glob(f"{'[0-9]' * 20}.json"))
    for version, log in enumerate(logs):
        if int(log.stem) != version:
            raise _missing_version(folder, version)
        lines = log.read_text("utf-8").splitlines()
        actions = [json.loads(line) for line in lines if text in line]
        added, removed = (
            {logged_file(folder, action[kind]["path"]) for action in actions if kind in action}
            for kind in ("add", "remove")
        )
        yield version, added, removed - added


def files_at(folder: Path, versions: AbstractSet[int]) -> frozenset[Path]:
    """All files of some versions of a table; see `changes_of`.

    Raises:
        WarehouseError: the table's log lacks one of them.
    """
    present: set[Path] = set()
    files: set[Path] = set()
    unseen = set(versions)
    for version, added, removed in changes_of(folder):
        present -= removed
        present |= added
        if version in versions:
            files |= present
            unseen.remove(version)
    if unseen:
        raise _missing_version(folder, min(unseen))
    return frozenset(files)


def partition_files(warehouse: Path, name: str, partition: date) -> list[frozenset[Path]]:
    """The files of a partition at each version of a table, from the first one on.

    Raises:
        WarehouseError: the table's log lacks a version.
    """
    folder, present = Layout(warehouse).table(name), frozenset[Path]()
    own = f"{PARTITIONED_BY[name]}={partition}"
    versions: list[frozenset[Path]] = []
    for _, added, removed in changes_of(folder, str(partition)):
        present = present - removed | {path for path in added if path.parent.name == own}
        versions.append(present)
    return versions


def _missing_version(folder: Path, version: int) -> WarehouseError:
    return WarehouseError(
        f"the Delta log of {folder.name} lacks its version {version}; {LAST_REMEDY}"
    )


def remove_unneeded(warehouse: Path, name: str, versions: Iterable[int]) -> int:
    """Remove the `unneeded_files`; returns their number."""
    unneeded = unneeded_files(warehouse, name, versions)
    for path in unneeded:
        path.unlink()
    return len(unneeded)


def unneeded_files(warehouse: Path, name: str, versions: Iterable[int]) -> list[Path]:
    """The data files of a table that belong to none of these versions.

    Raises:
        WarehouseError: a link is among them, or the table's log lacks a version.
    """
    needed = files_at(Layout(warehouse).table(name), set(versions))
    return [path for path in data_files(warehouse, name) if path not in needed]
