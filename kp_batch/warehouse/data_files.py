"""Write Parquet files into a table's folder; they take effect once a manifest names them."""

import re
from datetime import date
from pathlib import Path
from typing import Any, cast

import polars as pl

from kp_batch.files import atomic_write, files_below
from kp_batch.schemas import PARTITIONED_BY, TABLES
from kp_batch.warehouse.file_lists import DataFile
from kp_batch.warehouse.layout import Layout

_FORMAT: Any = {
    # A million scores took 157 MB; at level 3 161 MB, in twice the time; by Snappy 262 MB.
    "compression": "zstd",
    "compression_level": 1,
    # DuckDB reads row groups in parallel, and uses this size in its own files. It read a million
    # scores in 0.3 s, and in 0.5 s from one group.
    "row_group_size": 122_880,
}


def write_data_file(warehouse: Path, table: str, frame: pl.DataFrame, name: str) -> DataFile:
    """Write rows as one file, atomically; repeated, it writes the same file.

    Args:
        warehouse: the folder of the tables.
        table: the table's name.
        frame: the rows, all of one partition if the table has partitions.
        name: the name of the file without its ending: letters, digits and hyphens, unique to the
            run.

    Raises:
        TypeError: the frame has another schema than the table.
        ValueError: the rows belong to several partitions.
    """
    check_schema(table, frame.schema)
    partition = _partition(table, frame)
    path = f"{name}.parquet"
    if partition is not None:
        path = f"{PARTITIONED_BY[table]}={partition}/{path}"
        frame = frame.clone()
        frame.drop_in_place(PARTITIONED_BY[table])  # Delta keeps it in the log
    target = Layout(warehouse).table(table) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as written:
        frame.write_parquet(written, **_FORMAT)
    return DataFile(path, frame.height, target.stat().st_size, partition)


def sink_data_file(warehouse: Path, table: str, rows: pl.LazyFrame, name: str) -> DataFile:
    """Write the rows of a query in batches, as one file of a table without partitions.

    They may not fit into memory, and keep their order. See `write_data_file`.

    Raises:
        TypeError: the rows have another schema than the table.
    """
    check_schema(table, rows.collect_schema())
    target = Layout(warehouse).table(table) / f"{name}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as written:
        rows.sink_parquet(written, **_FORMAT)
    return data_file(target)


def move_data_file(warehouse: Path, table: str, staged: Path, name: str) -> DataFile:
    """Move a file on the warehouse's disk into a table without partitions.

    Repeated after the move, it leaves the file in the table's folder. See `write_data_file`.

    Raises:
        TypeError: the file has another schema than the table; it stays where it is.
        FileNotFoundError: it is in neither place.
    """
    target = Layout(warehouse).table(table) / f"{name}.parquet"
    if staged.exists():
        check_schema(table, pl.Schema(pl.read_parquet_schema(staged)))
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.replace(target)
    return data_file(target)


def data_file(path: Path) -> DataFile:
    """Describe a file in the folder of a table without partitions."""
    rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
    return DataFile(path.name, rows, path.stat().st_size, None)


def data_files(warehouse: Path, table: str) -> list[Path]:
    """Return all data files of a table, of any version, and unfinished ones of killed writers.

    Files whose names no writer uses are left out.

    Raises:
        WarehouseError: one of them is a link.
    """
    folder = Layout(warehouse).table(table)
    partition = rf"{PARTITIONED_BY[table]}=[^/]+/" if table in PARTITIONED_BY else ""
    # During a write, delta-rs appends a number to the name, and kp_batch uses `temporary_sibling`.
    name = re.compile(rf"{partition}[^/._][^/]*\.parquet(?:#\d+|\.[0-9a-f]{{32}}\.part)?")
    return [
        path for path in files_below(folder) if name.fullmatch(path.relative_to(folder).as_posix())
    ]


def check_schema(table: str, schema: pl.Schema) -> None:
    """Check that rows have the table's schema.

    Raises:
        TypeError: they have another schema.
    """
    if schema != TABLES[table]:
        raise TypeError(f"the table {table} has the schema {TABLES[table]}, got {schema}")


def _partition(table: str, frame: pl.DataFrame) -> date | None:
    if table not in PARTITIONED_BY:
        return None
    # Called for each day, so neither this nor the drop above should plan a query.
    values = frame.get_column(PARTITIONED_BY[table])
    least, most = cast("date | None", values.min()), cast("date | None", values.max())
    unknown = values.null_count()
    if least is None or least != most or unknown:
        raise ValueError(
            f"a file of {table} holds the rows of one partition, got {least} to {most}, "
            f"{unknown} unknown"
        )
    return least
