"""What a version of a Delta table holds, as the table's log tells."""

from functools import lru_cache
from pathlib import Path

import polars as pl
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kp_batch.errors import WarehouseError, is_passing
from kp_batch.failures import known
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.data_files import logged_file
from kp_batch.warehouse.layout import Layout

_REMEDY = "restore it from a copy, or run the archive into a new folder"


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
    return sorted(logged_file(folder, path) for path in paths)


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
        if is_passing(error) or known(error):
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
