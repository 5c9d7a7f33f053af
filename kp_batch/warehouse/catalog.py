"""kp.duckdb: the one file that says which version of each table is published.

It holds the manifest, and views over exactly those versions' files. It is built beside the old one
and swapped in whole, so everyone sees all tables change at once, or not at all.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from shlex import quote
from string import Template
from typing import cast

import duckdb
import polars as pl
from deltalake import DeltaTable

from kp_batch.contracts import TABLES
from kp_batch.errors import WarehouseError
from kp_batch.warehouse.lock import writing
from kp_batch.warehouse.query import CATALOG
from kp_batch.warehouse.tables import files_of, open_table

FORMAT_VERSION = 1

_DUCKDB_TYPES: Mapping[type[pl.DataType], str] = {
    pl.String: "VARCHAR",
    pl.Int64: "BIGINT",
    pl.Float64: "DOUBLE",
    pl.Boolean: "BOOLEAN",
    pl.Date: "DATE",
    pl.Datetime: "TIMESTAMPTZ",
    pl.List: "VARCHAR[]",
}


@dataclass(frozen=True)
class Manifest:
    """What is published: the truth from which planning and readers start."""

    threshold: float  # of the run that wrote the scores
    tables: dict[str, int]  # the version of each Delta table that there is


def read_manifest(warehouse: Path) -> Manifest | None:
    """What is published in the warehouse; None where nothing is.

    Raises:
        WarehouseError: the catalog cannot be read, or a later version of kp_batch made it.
    """
    path = warehouse / CATALOG
    if not path.exists():
        return None
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            [(found, threshold, tables)] = connection.execute(
                "SELECT format_version, threshold, tables FROM manifest"
            ).fetchall()
    except duckdb.Error as error:
        raise WarehouseError(
            f"{path} cannot be read ({str(error).partition(chr(10))[0]}); "
            f"remove it and run: kp-batch catalog --warehouse {quote(str(warehouse))}"
        ) from error
    if found != FORMAT_VERSION:
        raise WarehouseError(f"{path} was made by another version of kp_batch; use that one")
    return Manifest(threshold, json.loads(tables))


def publish(warehouse: Path, manifest: Manifest) -> None:
    """Build the catalog for the manifest and swap it in: the last act of a run.

    Raises:
        WarehouseError: a table of the manifest is gone.
    """
    path = warehouse / CATALOG
    beside = warehouse / f"{CATALOG}.new"
    beside.unlink(missing_ok=True)  # what a killed run left
    _build(beside, warehouse, manifest)
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    beside.replace(path)


def rebuild(warehouse: Path) -> Manifest:
    """Make the catalog anew for where the warehouse stands now.

    From the manifest; where kp.duckdb is lost, from the last row of `runs`.

    Raises:
        WarehouseError: there is neither, or a run is writing.
    """
    runs = open_table(warehouse, "runs")
    if runs is None and not (warehouse / CATALOG).exists():
        raise WarehouseError(f"{warehouse} is no warehouse: it has neither {CATALOG} nor runs")
    with writing(warehouse, wait=False):
        manifest = read_manifest(warehouse) or _last_run(cast("DeltaTable", runs))
        publish(warehouse, manifest)
    return manifest


def _last_run(runs: DeltaTable) -> Manifest:
    last = pl.scan_delta(runs).sort("finished_at").last().collect().row(0, named=True)
    published = json.loads(last["published"])
    return Manifest(published["threshold"], published["tables"] | {"runs": runs.version()})


def _build(path: Path, warehouse: Path, manifest: Manifest) -> None:
    with duckdb.connect() as connection:
        # Clients of DuckDB 1.4 and later can open this format; the newest only by 2.0.
        connection.execute(f"ATTACH {_quoted(str(path))} AS kp (STORAGE_VERSION 'v1.4.0')")
        connection.execute("USE kp")
        connection.execute(
            "CREATE TABLE manifest AS SELECT ?::INTEGER AS format_version, "
            "?::DOUBLE AS threshold, ?::VARCHAR AS tables, ?::VARCHAR AS warehouse",
            [
                FORMAT_VERSION,
                manifest.threshold,
                json.dumps(manifest.tables),
                str(warehouse.absolute()),
            ],
        )
        values = {name: _source(warehouse, name, manifest.tables.get(name)) for name in TABLES}
        values["threshold"] = repr(manifest.threshold)
        for name in TABLES:
            view = files("kp_batch.warehouse").joinpath("sql", f"{name}.sql").read_text("utf-8")
            connection.execute(Template(view).substitute(values))
        connection.execute("USE memory")
        connection.execute("DETACH kp")


def _source(warehouse: Path, name: str, version: int | None) -> str:
    """What a view reads: the version's files, or no rows of the same columns."""
    paths = [] if version is None else files_of(warehouse.absolute(), name, version)
    if paths:
        listed = ", ".join(_quoted(str(path)) for path in paths)
        return f"read_parquet([{listed}], hive_partitioning = false)"
    columns = ", ".join(
        f'NULL::{_DUCKDB_TYPES[dtype.base_type()]} AS "{column}"'
        for column, dtype in TABLES[name].items()
    )
    return f"(SELECT {columns} WHERE false)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
