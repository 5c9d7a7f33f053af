"""Delta tables: reads their versions, and commits new ones, which name data files.

Nobody sees a version that a run commits until the manifest names it. The rows are read and written
elsewhere: see `snapshot` and `data_files`.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import polars as pl
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from kp_batch.errors import WarehouseError, explain_mendable, is_passing
from kp_batch.schemas import PARTITIONED_BY, TABLES, arrow_schema
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.data_files import DataFile, data_files, write_data_file
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import LAST_REMEDY

# The published version may be as old as the last successful run, so the log keeps all. It holds no
# statistics: their minima and maxima would be ids of traces that outlive the rows.
CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.dataSkippingNumIndexedCols": "0",
}


class DeltaTables:
    """The tables of one warehouse, starting from the versions that its manifest names.

    Versions that a killed run committed after these are undone before a table's next write. Nothing
    is changed before the first write.

    Args:
        warehouse: the folder of the tables.
        published: the published version of each table.
        run_id: of the run that writes; it is put into Delta's log.
    """

    def __init__(self, warehouse: Path, published: Mapping[str, int], run_id: str) -> None:
        self._warehouse = warehouse
        self._run_id = run_id
        self.versions = dict(published)

    def overwrite(self, name: str, rows: pl.DataFrame) -> None:
        """Replace all rows of a table without partitions.

        Raises:
            TypeError: the rows have another schema than the table.
            WarehouseError: another writer changed the table at the same time.
        """
        self.replace_files(name, [self._write(name, rows)], None)

    def append(self, name: str, rows: pl.DataFrame) -> None:
        """Add rows to a table without partitions.

        Raises:
            TypeError: the rows have another schema than the table.
            WarehouseError: another writer changed the table at the same time.
        """
        self.add_files(name, [self._write(name, rows)])

    def _write(self, name: str, rows: pl.DataFrame) -> DataFile:
        return write_data_file(self._warehouse, name, rows, f"{self._run_id}-{uuid4().hex}")

    def add_files(self, name: str, files: Sequence[DataFile]) -> None:
        """Add files to a table; they are in its folder.

        Raises:
            FileNotFoundError: a file is gone.
            WarehouseError: another writer changed the table at the same time.
        """
        self._commit_files(name, files, replaced=set())

    def replace_files(
        self, name: str, files: Sequence[DataFile], partitions: Iterable[date] | None
    ) -> None:
        """Replace the rows of some partitions, or all rows if None, by files.

        Raises:
            FileNotFoundError: a file is gone.
            ValueError: a file is of another partition.
            WarehouseError: another writer changed the table at the same time.
        """
        replaced = None if partitions is None else set(partitions)
        for file in files:
            if replaced is not None and file.partition not in replaced:
                raise ValueError(f"{file.path} is of no partition of {name} that is replaced")
        self._commit_files(name, files, replaced)

    def _commit_files(
        self, name: str, files: Sequence[DataFile], replaced: set[date] | None
    ) -> None:
        if self.undo_unpublished(name):
            replaced = None
        folder = Layout(self._warehouse).table(name)
        # Without retries: another writer's commit in between may never be published.
        properties = CommitProperties({"run_id": self._run_id}, max_commit_retries=0)
        try:
            _commit(folder, name, files, replaced, properties)
        except CommitFailedError as error:
            raise WarehouseError(
                f"another writer changed the table {name} of {shown(self._warehouse)} at the same "
                "time; nothing was published; run again"
            ) from error
        self.versions[name] = DeltaTable(str(folder)).version()

    def undo_unpublished(self, name: str) -> bool:
        """Restore a table's published version, unless the newest one has its rows.

        Returns:
            Whether the table exists without a published version: then all of its rows have to go.
        """
        published = self.versions.get(name)
        table = open_table(self._warehouse, name)
        if table is not None and published is not None and table.version() > published:
            if not _are_same(table, open_table(self._warehouse, name, published)):
                table.restore(published)
            self.versions[name] = table.version()
        return table is not None and published is None

    def undo_all(self) -> None:
        """Restore the published version of every table, for those who read one by itself.

        A table that was never published loses its rows.
        """
        for name in TABLES:
            following = self.versions.get(name, -1) + 1
            log = Layout(self._warehouse).table(name) / "_delta_log"
            if not (log / f"{following:020d}.json").exists():
                continue
            if self.undo_unpublished(name) and DeltaTable(str(log.parent)).file_uris():
                self.replace_files(name, [], None)
                del self.versions[name]


def _are_same(table: DeltaTable, other: DeltaTable | None) -> bool:
    """Whether two versions of a table have the same rows and columns."""
    if other is None or table.schema().fields != other.schema().fields:
        return False
    return {*table.file_uris()} == {*other.file_uris()}


def _commit(
    folder: Path,
    name: str,
    files: Sequence[DataFile],
    replaced: set[date] | None,
    properties: CommitProperties,
) -> None:
    """Add files to a table, made if it is missing; remove other files of partitions, or all."""
    schema = Schema.from_arrow(arrow_schema(TABLES[name]))
    added = [_addition(folder, name, file) for file in files]
    options: Any = {"partition_by": PARTITIONED_BY.get(name), "commit_properties": properties}
    if not DeltaTable.is_deltatable(str(folder)):
        create_table_with_add_actions(
            str(folder), schema, added, configuration=CONFIGURATION, **options
        )
        return
    table = DeltaTable(str(folder))
    if table.schema().fields == schema.fields:
        # Mode "overwrite" would also remove a file that is added once more.
        removed = _removals(table, name, replaced, {file.path for file in files})
        table.create_write_transaction([*added, *removed], "append", schema, **options)
    elif replaced is None:
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


def _removals(
    table: DeltaTable, name: str, replaced: set[date] | None, remaining: set[str]
) -> list[RemoveAction]:
    """The actions that remove the files of some partitions, or all, but the remaining paths."""
    column = f"partition.{PARTITIONED_BY[name]}" if name in PARTITIONED_BY else None
    now = int(time.time() * 1000)
    actions: list[RemoveAction] = []
    for row in pl.DataFrame(table.get_add_actions(flatten=True)).iter_rows(named=True):
        path, size, partition = row["path"], row["size_bytes"], row[column] if column else None
        if path not in remaining and (replaced is None or partition in replaced):
            values = _partition_values(name, partition)
            actions.append(
                RemoveAction(
                    path,
                    data_change=True,
                    deletion_timestamp=now,
                    size=size,
                    partition_values=values,
                )
            )
    return actions


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
    if version is None:
        return []
    folder = Layout(warehouse).table(name)
    paths = additions(warehouse, name, version)["path"]
    return sorted(_logged_file(folder, path) for path in paths)


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


def additions(warehouse: Path, name: str, version: int) -> pl.DataFrame:
    """The log's entry for each file of a table's version: `path`, `num_records`, and more.

    Raises:
        WarehouseError: the table or that version is gone, or cannot be read.
    """
    commit = Layout(warehouse).table(name) / "_delta_log" / f"{version:020d}.json"
    try:
        status = commit.stat()
    except OSError:  # the table is gone, or its log is a checkpoint there
        return _read_additions(warehouse, name, version)
    identity = (status.st_dev, status.st_ino, status.st_mtime_ns)
    return _cached_additions(warehouse, name, version, identity)


def _read_additions(warehouse: Path, name: str, version: int) -> pl.DataFrame:
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
    return pl.DataFrame(table.get_add_actions(flatten=True))


@lru_cache(maxsize=32)  # a run asks some ten times; the commit's file identifies a version
def _cached_additions(
    warehouse: Path, name: str, version: int, _commit: tuple[int, int, int]
) -> pl.DataFrame:
    return _read_additions(warehouse, name, version)


def _logged_file(folder: Path, path: str) -> Path:
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
            {_logged_file(folder, action[kind]["path"]) for action in actions if kind in action}
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
