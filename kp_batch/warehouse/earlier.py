"""Tables as an earlier kp_batch left them: columns that came since are null in all rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from kp_batch.contracts import PARTITIONED_BY, TABLES
from kp_batch.warehouse.data_files import DataFile, partition_of, sink_data_file, write_data_file
from kp_batch.warehouse.tables import DeltaTables
from kp_batch.warehouse.versions import files_of


def lacking(name: str, paths: Sequence[Path]) -> Mapping[str, pl.DataType]:
    """The columns that a table's files lack, with their types: all files of a version or none."""
    try:
        present = pl.read_parquet_schema(paths[0])
    except (IndexError, OSError, pl.exceptions.PolarsError):  # who reads it tells what is wrong
        return {}
    return {
        column: dtype
        for column, dtype in TABLES[name].items()
        if column not in present and column != PARTITIONED_BY.get(name)
    }


def nulls(name: str, paths: Sequence[Path]) -> list[pl.Expr]:
    """What adds the columns that a table's files lack; see `lacking`."""
    return [pl.lit(None, dtype).alias(column) for column, dtype in lacking(name, paths).items()]


def complete(warehouse: Path, tables: DeltaTables) -> None:
    """Write the files anew of tables that lack columns, with nulls there.

    Args:
        warehouse: the folder of the tables.
        tables: they get the new versions, which nobody sees yet.
    """
    for name in tuple(tables.versions):
        paths = files_of(warehouse, name, tables.versions[name])
        if lacking(name, paths):
            files = [_complete(warehouse, name, path) for path in paths]
            tables.replace_files(name, files, None)


def _complete(warehouse: Path, name: str, path: Path) -> DataFile:
    found = pl.scan_parquet(path, glob=False, hive_partitioning=False)
    rows, columns = found.with_columns(nulls(name, [path])), list(TABLES[name])
    made = f"completed-{path.stem}"  # the same in each try
    if name not in PARTITIONED_BY:
        return sink_data_file(warehouse, name, rows.select(columns), made)
    day = pl.lit(partition_of(name, path)).alias(PARTITIONED_BY[name])
    return write_data_file(warehouse, name, rows.with_columns(day).select(columns).collect(), made)
