"""Delta tables: their versions read, and new ones written by commits that name files.

A run writes a table, and nobody sees a version until the manifest names it. No row is read or
written here: see `data_files`.
"""

import json
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import date
from functools import lru_cache
from pathlib import Path, PurePosixPath
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

# The published version may be as old as the last successful run, so the log has to keep it. The log
# holds no statistics: their least and greatest values would be traces' ids that outlive their rows.
CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.dataSkippingNumIndexedCols": "0",
}
_REMEDY = "restore it from a copy, or run the archive into a new folder"


class DeltaTables:
    """The tables of one warehouse, starting from the versions that its manifest names.

    What a killed run committed after these versions is undone before the next write: only what is
    published ever happened. Nothing is touched before the first write.

    Args:
        warehouse: the folder of the tables.
        published: the published version of each table.
        run_id: of the run that writes; Delta's log keeps it.
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
        self.replace_files(name, [self._written(name, rows)], None)

    def append(self, name: str, rows: pl.DataFrame) -> None:
        """Add rows to a table without partitions.

        Raises:
            TypeError: the rows have another schema than the table.
            WarehouseError: another writer changed the table at the same time.
        """
        self.add_files(name, [self._written(name, rows)])

    def _written(self, name: str, rows: pl.DataFrame) -> DataFile:
        return write_data_file(self._warehouse, name, rows, f"{self._run_id}-{uuid4().hex}")

    def add_files(self, name: str, files: Sequence[DataFile]) -> None:
        """Add the rows of files, which are in the table's folder.

        Raises:
            FileNotFoundError: a file is gone.
            WarehouseError: another writer changed the table at the same time.
        """
        self._commit_files(name, files, replaced=set())

    def replace_files(
        self, name: str, files: Sequence[DataFile], partitions: Iterable[date] | None
    ) -> None:
        """Replace the rows of some partitions, or all rows if None, by those of files.

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
        with self._committing(name) as properties:
            commit_files(folder, name, files, replaced, properties)

    @contextmanager
    def _committing(self, name: str) -> Generator[CommitProperties]:
        """Give the properties of a commit, and note the version that it makes."""
        try:
            # Tried once: another writer's commit in between may never be published.
            yield CommitProperties({"run_id": self._run_id}, max_commit_retries=0)
        except CommitFailedError as error:
            raise WarehouseError(
                f"another writer changed the table {name} of {shown(self._warehouse)} at the same "
                "time; nothing was published; run again"
            ) from error
        self.versions[name] = DeltaTable(str(Layout(self._warehouse).table(name))).version()

    def undo_unpublished(self, name: str) -> bool:
        """Restore a table's published version.

        Returns:
            Whether none is published, though the table exists: then all of its rows have to go.
        """
        published = self.versions.get(name)
        table = open_table(self._warehouse, name)
        if table is not None and published is not None and table.version() > published:
            table.restore(published)
            self.versions[name] = table.version()
        return table is not None and published is None


def commit_files(
    folder: Path,
    name: str,
    files: Sequence[DataFile],
    replaced: set[date] | None,
    properties: CommitProperties,
) -> None:
    """Make files a table's, and create it where it is missing.

    Args:
        folder: the table's, which holds the files.
        name: the table's.
        files: may be none.
        replaced: the partitions whose other files are removed; None: all other files.
        properties: of the commit.

    Raises:
        ValueError: the table has other columns, and some of its files would stay.
        CommitFailedError: another writer changed the table at the same time.
    """
    schema = Schema.from_arrow(arrow_schema(TABLES[name]))
    added = [_addition(folder, name, file) for file in files]
    by = PARTITIONED_BY.get(name)
    if DeltaTable.is_deltatable(str(folder)):
        table = DeltaTable(str(folder))
        if table.schema().fields != schema.fields:
            if replaced is not None:
                raise ValueError(f"files of {name} have other columns than those that would stay")
            # Only this mode takes other columns, and all files with them.
            table.create_write_transaction(
                [*added], "overwrite", schema, by, commit_properties=properties
            )
            return
        # Mode "overwrite" would find them itself, but also remove a file that is added once more.
        removed = _removals(table, name, replaced, {file.path for file in files})
        actions = [*added, *removed]
        table.create_write_transaction(actions, "append", schema, by, commit_properties=properties)
    else:
        create_table_with_add_actions(
            str(folder),
            schema,
            added,
            partition_by=by,
            configuration=CONFIGURATION,
            commit_properties=properties,
        )


def _addition(folder: Path, name: str, file: DataFile) -> AddAction:
    """The action that adds a file; of its rows it tells only the number and the partition."""
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=_partition_values(name, file.partition),
        modification_time=int((folder / file.path).stat().st_mtime * 1000),
        data_change=True,
        stats=f'{{"numRecords":{file.rows}}}',
    )


def _removals(
    table: DeltaTable, name: str, replaced: set[date] | None, kept: set[str]
) -> list[RemoveAction]:
    """The actions that remove the files of some partitions, or all, but those of the paths kept."""
    column = f"partition.{PARTITIONED_BY[name]}" if name in PARTITIONED_BY else None
    now = int(time.time() * 1000)
    actions: list[RemoveAction] = []
    for row in pl.DataFrame(table.get_add_actions(flatten=True)).iter_rows(named=True):
        path, size, partition = row["path"], row["size_bytes"], row[column] if column else None
        if path not in kept and (replaced is None or partition in replaced):
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


def additions(warehouse: Path, name: str, version: int) -> pl.DataFrame:
    """What the log tells of each file of a table's version: `path`, `num_records`, and more.

    Raises:
        WarehouseError: the table or that version is gone, or cannot be read.
    """
    commit = Layout(warehouse).table(name) / "_delta_log" / f"{version:020d}.json"
    try:
        found = commit.stat()
    except OSError:  # the table is gone, or its log is a checkpoint there
        return _read_additions(warehouse, name, version)
    return _known_additions(
        warehouse, name, version, (found.st_dev, found.st_ino, found.st_mtime_ns)
    )


def _read_additions(warehouse: Path, name: str, version: int) -> pl.DataFrame:
    try:
        table = open_table(warehouse, name, version)
    except DeltaError as error:
        if is_passing(error) or explain_mendable(error):
            raise
        told = f"version {version} of the table {name} cannot be read from {shown(warehouse)}"
        raise WarehouseError(f"{told}: {error}; {_REMEDY}") from error
    if table is None:
        raise WarehouseError(f"the table {name} is gone from {shown(warehouse)}; {_REMEDY}")
    return pl.DataFrame(table.get_add_actions(flatten=True))


@lru_cache(maxsize=32)  # a run asks some ten times; the last commit tells a version from all others
def _known_additions(
    warehouse: Path, name: str, version: int, _commit: tuple[int, int, int]
) -> pl.DataFrame:
    return _read_additions(warehouse, name, version)


def _logged_file(folder: Path, path: str) -> Path:
    """The file of a table that its Delta log names.

    Args:
        folder: the table's.
        path: as it stands in the log.

    Raises:
        WarehouseError: it leads out of the folder.
    """
    name = PurePosixPath(unquote(path))
    if name.is_absolute() or ".." in name.parts:
        raise WarehouseError(
            f"the Delta log of {folder.name} names a file outside its folder ({path!r}), as no run "
            "does; do not use that warehouse, or restore it from a copy"
        )
    return folder / name


def changes_of(folder: Path) -> Iterator[tuple[int, set[Path], set[Path]]]:
    """Read what files each version of a table adds and removes, the first one first.

    To open a table at each of its versions takes the square of their number.

    Raises:
        WarehouseError: the log lacks a version, or names a file outside the table's folder.
    """
    logs = sorted((folder / "_delta_log").glob(f"{'[0-9]' * 20}.json"))
    for version, log in enumerate(logs):
        if int(log.stem) != version:
            raise _lacking(folder, version)
        actions = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        added, removed = (
            {_logged_file(folder, action[what]["path"]) for action in actions if what in action}
            for what in ("add", "remove")
        )
        yield version, added, removed - added


def files_at(folder: Path, versions: AbstractSet[int]) -> frozenset[Path]:
    """All files that any of these versions of a table has; see `changes_of`.

    Raises:
        WarehouseError: the table's log does not tell.
    """
    present: set[Path] = set()
    found: set[Path] = set()
    unknown = set(versions)
    for version, added, removed in changes_of(folder):
        present -= removed
        present |= added
        if version in versions:
            found |= present
            unknown.remove(version)
    if unknown:
        raise _lacking(folder, min(unknown))
    return frozenset(found)


def _lacking(folder: Path, version: int) -> WarehouseError:
    return WarehouseError(f"the Delta log of {folder.name} lacks its version {version}; {_REMEDY}")


def remove_unneeded(warehouse: Path, name: str, versions: Iterable[int]) -> int:
    """Remove what `unneeded_files` gives; returns how many files that were."""
    unneeded = unneeded_files(warehouse, name, versions)
    for path in unneeded:
        path.unlink()
    return len(unneeded)


def unneeded_files(warehouse: Path, name: str, versions: Iterable[int]) -> list[Path]:
    """The files of a table that none of these versions needs; see `data_files`.

    Raises:
        WarehouseError: a link is among them, or the table's log does not tell.
    """
    needed = files_at(Layout(warehouse).table(name), set(versions))
    return [path for path in data_files(warehouse, name) if path not in needed]
