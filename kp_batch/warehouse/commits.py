"""Commits that name the files which a table gains and loses; no row is read or written."""

import json
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from pathlib import Path

import polars as pl
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from kp_batch.contracts import PARTITIONED_BY, TABLES, arrow_schema
from kp_batch.errors import WarehouseError
from kp_batch.warehouse.data_files import DataFile, logged_file

# The published version may be as old as the last successful run, so the log has to keep it. The log
# holds no statistics: their least and greatest values would be traces' ids that outlive their rows.
CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.dataSkippingNumIndexedCols": "0",
}


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
            {logged_file(folder, each[what]["path"]) for each in actions if what in each}
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
    return WarehouseError(
        f"the Delta log of {folder.name} lacks its version {version}; restore it from a copy, or "
        "run the archive into a new folder"
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
