"""The published tables as DuckDB reads them, hidden columns and tables included."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import cast

import duckdb
import polars as pl

from kp_batch.contracts import PARTITIONED_BY, TABLES
from kp_batch.warehouse.tables import files_of, quoted

_DUCKDB_TYPES: Mapping[type[pl.DataType], str] = {
    pl.String: "VARCHAR",
    pl.Int64: "BIGINT",
    pl.Float64: "DOUBLE",
    pl.Boolean: "BOOLEAN",
    pl.Date: "DATE",
    pl.Datetime: "TIMESTAMPTZ",
}


def relation(warehouse: Path, name: str, version: int | None) -> str:
    """SQL for the rows of a table's version, without its partition; None: for no rows.

    Raises:
        WarehouseError: the table or that version is gone.
    """
    return reading(name, files_of(warehouse.resolve(), name, version))


def scan(warehouse: Path, name: str, version: int | None) -> pl.LazyFrame:
    """The rows of a table's version, without its partition; of None, and of no files: no rows.

    Raises:
        WarehouseError: the table or that version is gone.
    """
    paths = files_of(warehouse, name, version)
    if not paths:
        return TABLES[name].to_frame().lazy()
    return pl.scan_parquet(paths, glob=False, hive_partitioning=False)


def partitions_of(warehouse: Path, name: str, version: int | None) -> dict[date, list[Path]]:
    """The files of a table's version, by the day that they hold, ascending.

    Raises:
        WarehouseError: the table or that version is gone.
    """
    days: dict[date, list[Path]] = {}
    for path in files_of(warehouse.resolve(), name, version):
        day = date.fromisoformat(path.parent.name.removeprefix(f"{PARTITIONED_BY[name]}="))
        days.setdefault(day, []).append(path)
    return days


def reading(name: str, paths: list[Path]) -> str:
    """SQL for the rows of some files of a table, or for no rows of the same columns."""
    if paths:
        listed = ", ".join(quoted(str(path)) for path in paths)
        return f"read_parquet([{listed}], hive_partitioning = false)"
    columns = ", ".join(
        f'NULL::{_duckdb_type(dtype)} AS "{column}"' for column, dtype in TABLES[name].items()
    )
    return f"(SELECT {columns} WHERE false)"


def _duckdb_type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List):
        return f"{_duckdb_type(cast('pl.DataType', dtype.inner))}[]"
    return _DUCKDB_TYPES[dtype.base_type()]


def show(
    connection: duckdb.DuckDBPyConnection, warehouse: Path, tables: Mapping[str, int], schema: str
) -> None:
    """Make a view of each table's version in a schema of the connection.

    Raises:
        WarehouseError: a table or its version is gone.
    """
    connection.execute(f"CREATE SCHEMA {schema}")
    for name in TABLES:
        rows = relation(warehouse, name, tables.get(name))
        connection.execute(f"CREATE VIEW {schema}.{name} AS FROM {rows}")
