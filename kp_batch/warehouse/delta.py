"""Export what is published as Delta tables, for readers who open a table by itself.

Only the manifest decides what is published; see `publication`. Afterwards each Delta table gets a
version with the files of the manifest. So Delta's readers see a whole publication. If a writer was
killed in between, they see the previous one until the next export.
"""

import json
import time
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from kp_batch.files import sync_new
from kp_batch.schemas import PARTITIONED_BY, TABLES, arrow_schema
from kp_batch.warehouse.file_lists import DataFile
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, read_manifest
from kp_batch.warehouse.snapshot import PublishedSnapshot

if TYPE_CHECKING:  # most commands find the tables up to date
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

# No statistics in the log: minima and maxima would be ids of traces, and outlive the rows.
CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.dataSkippingNumIndexedCols": "0",
}
_STATE = "kp_batch.lists"  # in a commit's metadata: the lists that it has
_TRIES = 5  # while others export at the same time


def export(warehouse: Path) -> None:
    """Bring each Delta table to the published files; repeated, it changes nothing.

    It never goes back to an earlier publication: it reads what is published after the table's
    newest version, and the commit fails if another one came after that. One case is left: if a
    rollback publishes the same lists at that moment, readers may see the older publication until
    the next export.

    Raises:
        Exception: a table cannot be written; what is published is intact.
    """
    for name in TABLES:
        _export_table(warehouse, name, _TRIES)


def _export_table(warehouse: Path, name: str, tries: int) -> None:
    folder = Layout(warehouse).table(name)
    newest = _newest_commit(folder)
    manifest = read_manifest(warehouse)
    if manifest is None or (name not in manifest.tables and newest is None):
        return
    state = _state_of(manifest, name)
    if newest and newest[1] == state:
        return
    from deltalake import CommitProperties, DeltaTable
    from deltalake.exceptions import CommitFailedError

    # Opened only here, because that reads all of its log.
    table = DeltaTable(str(folder), version=newest[0]) if newest else None
    files = {file.path: file for file in PublishedSnapshot(warehouse, manifest).data_files(name)}
    try:
        _commit(folder, name, table, files, CommitProperties({_STATE: state}, max_commit_retries=0))
    except CommitFailedError:  # another writer exports, and may have finished
        if tries == 1:
            raise
        _export_table(warehouse, name, tries - 1)
        return
    version = newest[0] + 1 if newest else 0
    known = [_commit_file(folder, newest[0])] if newest else []
    sync_new([_commit_file(folder, version)], known, warehouse)


def _newest_commit(folder: Path) -> tuple[int, str | None] | None:
    """Return the newest version of a table, and its lists; None if there is no table."""
    log = folder / "_delta_log"
    commits = [path for path in log.glob("*.json") if path.stem.isdecimal()]
    for newest in sorted(commits, reverse=True):
        try:
            lines = _whole(newest.read_bytes()).splitlines()
            first, _last = json.loads(lines[0]), json.loads(lines[-1])
        except ValueError:  # a power cut has left it empty or cut: export again
            newest.unlink()
            continue
        return int(newest.stem), first.get("commitInfo", {}).get(_STATE)
    return None


def _commit_file(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020}.json"


def _whole(commit: bytes) -> bytes:
    """Return a commit; after a power cut the disk may have zeros or nothing in its place."""
    if not commit or b"\0" in commit:
        raise ValueError
    return commit


def _state_of(manifest: Manifest, name: str) -> str:
    lists = json.dumps(manifest.tables.get(name, {}), sort_keys=True)
    return sha256(lists.encode()).hexdigest()[:32]


def _commit(
    folder: Path,
    name: str,
    table: "DeltaTable | None",
    files: Mapping[str, DataFile],
    properties: "CommitProperties",
) -> None:
    """Commit the files of a table as its next version, or as its first one."""
    from deltalake import Schema
    from deltalake.transaction import create_table_with_add_actions

    schema = Schema.from_arrow(arrow_schema(TABLES[name]))
    options: Any = {"partition_by": PARTITIONED_BY.get(name), "commit_properties": properties}
    if table is None:
        added = add_actions(folder, name, files.values())
        create_table_with_add_actions(
            str(folder), schema, added, configuration=CONFIGURATION, **options
        )
        return
    if table.schema() != schema:  # of an earlier format: this replaces it with all files
        every: list[AddAction | RemoveAction] = [*add_actions(folder, name, files.values())]
        table.create_write_transaction(every, "overwrite", schema, **options)
        return
    listed = pl.DataFrame(table.get_add_actions())
    now = dict(listed.select("path", "size_bytes").iter_rows())
    added = add_actions(folder, name, (file for path, file in files.items() if path not in now))
    gone = {path: size for path, size in now.items() if path not in files}
    actions = [*added, *remove_actions(name, gone)]
    table.create_write_transaction(actions, "append", schema, **options)


def add_actions(folder: Path, name: str, files: Iterable[DataFile]) -> "list[AddAction]":
    """Return the actions that add files, with the number of rows as the only statistics."""
    from deltalake.transaction import AddAction

    return [
        AddAction(
            path=file.path,
            size=file.size,
            partition_values=_partition_values(name, file.path),
            modification_time=int((folder / file.path).stat().st_mtime * 1000),
            data_change=True,
            stats=f'{{"numRecords":{file.rows}}}',
        )
        for file in files
    ]


def remove_actions(name: str, sizes: Mapping[str, int]) -> "list[RemoveAction]":
    """Return the actions that remove files; their sizes are given."""
    from deltalake.transaction import RemoveAction

    now = int(time.time() * 1000)
    return [
        RemoveAction(
            path,
            data_change=True,
            deletion_timestamp=now,
            size=size,
            partition_values=_partition_values(name, path),
        )
        for path, size in sizes.items()
    ]


def _partition_values(name: str, path: str) -> dict[str, str | None]:
    """Return the partition of a file, which its folder names: `date=2026-03-01`."""
    if name not in PARTITIONED_BY:
        return {}
    column, _, value = path.partition("/")[0].partition("=")
    return {column: value}
