"""Versions of the tables as DuckDB and Polars read them, whether the catalog shows them or not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import cast

import duckdb
import polars as pl

from kp_batch.contracts import PARTITIONED_BY, TABLES
from kp_batch.errors import WarehouseError
from kp_batch.run_record import RunRecord
from kp_batch.sql import SQL, identifier, joined, read_parquet, statement
from kp_batch.warehouse.data_files import partition_of
from kp_batch.warehouse.manifest import Manifest
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
    return pl.scan_parquet(paths, glob=False, hive_partitioning=False)


def run_records(warehouse: Path, version: int | None) -> list[RunRecord]:
    """The rows of a version of `runs`; the column `inputs`, which may be large, is not read.

    Raises:
        WarehouseError: the table or that version is gone.
    """
    columns = [field.name for field in fields(RunRecord)]
    rows = scan(warehouse, "runs", version).select(columns).collect()
    return [RunRecord.of(row) for row in rows.iter_rows(named=True)]


def relation(warehouse: Path, name: str, version: int | None) -> SQL:
    """SQL for a table's version, without its partition column; no rows if `version` is None.

    Raises:
        WarehouseError: the table or that version is gone.
    """
    return parquet_relation(name, files_of(warehouse.resolve(), name, version))


def parquet_relation(
    name: str, paths: Sequence[Path], shown_as: Callable[[Path], str] = str
) -> SQL:
    """SQL for the rows of some of a table's files; without paths, no rows of the same columns.

    Args:
        name: the table's.
        paths: the files.
        shown_as: where the reader of the SQL finds each of them.
    """
    if paths:
        return read_parquet(*map(shown_as, paths))
    return statement("(SELECT $nulls WHERE false)", nulls=_nulls(TABLES[name]))


def _nulls(columns: Mapping[str, pl.DataType]) -> SQL:
    return joined(
        statement("NULL::$type AS $name", type=_duckdb_type(dtype), name=identifier(name))
        for name, dtype in columns.items()
    )


def _duckdb_type(dtype: pl.DataType) -> SQL:
    if isinstance(dtype, pl.List):
        return statement("$type[]", type=_duckdb_type(cast("pl.DataType", dtype.inner)))
    return SQL(_DUCKDB_TYPES[dtype.base_type()])


def attach_tables(
    connection: duckdb.DuckDBPyConnection, warehouse: Path, tables: Mapping[str, int], schema: str
) -> None:
    """Create a view of each table's version in a new schema of the connection.

    Raises:
        WarehouseError: a table or its version is gone.
    """
    connection.execute(statement("CREATE SCHEMA $schema", schema=schema))
    for name in TABLES:
        create_view(connection, schema, name, relation(warehouse, name, tables.get(name)))


def create_view(connection: duckdb.DuckDBPyConnection, schema: str, name: str, rows: SQL) -> None:
    """Create a view of a schema of the connection, over rows."""
    view = statement("CREATE VIEW $schema.$name AS FROM $rows", schema=schema, name=name, rows=rows)
    connection.execute(view)


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
