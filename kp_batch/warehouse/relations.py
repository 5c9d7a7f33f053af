"""Versions of the tables as DuckDB and Polars read them, whether the catalog shows them or not."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import cast

import duckdb
import polars as pl

from kp_batch.contracts import PARTITIONED_BY, TABLES
from kp_batch.errors import WarehouseError
from kp_batch.run_record import RunRecord
from kp_batch.warehouse.data_files import partition_of
from kp_batch.warehouse.earlier import lacking, nulls
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.tables import listed
from kp_batch.warehouse.versions import additions, files_of

_DUCKDB_TYPES: Mapping[type[pl.DataType], str] = {
    pl.String: "VARCHAR",
    pl.Int64: "BIGINT",
    pl.Float64: "DOUBLE",
    pl.Boolean: "BOOLEAN",
    pl.Date: "DATE",
    pl.Datetime: "TIMESTAMPTZ",
}


def scan(warehouse: Path, name: str, version: int | None) -> pl.LazyFrame:
    """Scan a table's version, without its partition column; empty if `version` is None.

    Raises:
        WarehouseError: the table or that version is gone.
    """
    paths = files_of(warehouse, name, version)
    if not paths:
        return TABLES[name].to_frame().lazy()
    rows = pl.scan_parquet(paths, glob=False, hive_partitioning=False)
    return rows.with_columns(nulls(name, paths))


def run_records(warehouse: Path, version: int | None) -> list[RunRecord]:
    """The rows of a version of `runs`; the column `inputs`, which may be large, is not read.

    Raises:
        WarehouseError: the table or that version is gone.
    """
    columns = [field.name for field in fields(RunRecord)]
    rows = scan(warehouse, "runs", version).select(columns).collect()
    return [RunRecord.of(row) for row in rows.iter_rows(named=True)]


def relation(warehouse: Path, name: str, version: int | None) -> str:
    """SQL for a table's version, without its partition column; no rows if `version` is None.

    Raises:
        WarehouseError: the table or that version is gone.
    """
    return parquet_relation(name, files_of(warehouse.resolve(), name, version))


def parquet_relation(name: str, paths: Sequence[Path]) -> str:
    """SQL for the rows of some of a table's files; without paths, no rows of the same columns."""
    if paths:
        rows = f"read_parquet({listed(paths)}, hive_partitioning = false)"
        came_since = _nulls(lacking(name, paths))
        return f"(SELECT *, {came_since} FROM {rows})" if came_since else rows  # noqa: S608 (names of this module's)
    return f"(SELECT {_nulls(TABLES[name])} WHERE false)"


def _nulls(columns: Mapping[str, pl.DataType]) -> str:
    return ", ".join(f'NULL::{_duckdb_type(dtype)} AS "{name}"' for name, dtype in columns.items())


def _duckdb_type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List):
        return f"{_duckdb_type(cast('pl.DataType', dtype.inner))}[]"
    return _DUCKDB_TYPES[dtype.base_type()]


def attach_tables(
    connection: duckdb.DuckDBPyConnection, warehouse: Path, tables: Mapping[str, int], schema: str
) -> None:
    """Create a view of each table's version in a new schema of the connection.

    Raises:
        WarehouseError: a table or its version is gone.
    """
    connection.execute(f"CREATE SCHEMA {schema}")
    for name in TABLES:
        rows = relation(warehouse, name, tables.get(name))
        connection.execute(f"CREATE VIEW {schema}.{name} AS FROM {rows}")


def frame_of(rows: duckdb.DuckDBPyRelation) -> pl.DataFrame:
    """Run a query of DuckDB and return its rows as a frame."""
    return pl.DataFrame(rows.to_arrow_table())


def kept_files(warehouse: Path, name: str, manifest: Manifest, run_id: str) -> list[Path]:
    """List the files of a table as a run left it.

    Args:
        warehouse: the folder of the tables.
        name: the table's.
        manifest: what was published when the run had ended.
        run_id: of the run, for the message.

    Raises:
        WarehouseError: the table is gone, or files that the run left were removed.
    """
    paths = files_of(warehouse.resolve(), name, manifest.tables.get(name))
    if not all(path.exists() for path in paths):
        raise WarehouseError(
            f"the tables as run {run_id} left them were removed (by kp-batch vacuum or forget); "
            "ask of a later run"
        )
    return paths


def rows_by_day(warehouse: Path, name: str, version: int) -> pl.DataFrame:
    """Count the rows of a table's version by the day that its files hold: `day` and `rows`.

    The table's log tells them; see `DataFile.rows`.

    Raises:
        WarehouseError: the table or that version is gone.
    """
    files = additions(warehouse, name, version)
    day = pl.col(f"partition.{PARTITIONED_BY[name]}").alias("day")
    return files.group_by(day).agg(rows=pl.col("num_records").sum())


def partitions_of(warehouse: Path, name: str, version: int | None) -> dict[date, list[Path]]:
    """List the files of a table's version by the day that they hold, in ascending order.

    Raises:
        WarehouseError: the table or that version is gone.
    """
    days: dict[date, list[Path]] = {}
    for path in files_of(warehouse.resolve(), name, version):
        days.setdefault(partition_of(name, path), []).append(path)
    return days
