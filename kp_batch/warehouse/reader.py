"""Opens the catalog: as it is now, or as a run left it."""

import tempfile
from pathlib import Path

import duckdb

from kp_batch.errors import WarehouseError
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import open_catalog, read_manifest, rebuild_command


def connect(warehouse: Path, as_of: str | None = None) -> duckdb.DuckDBPyConnection:
    """Open the warehouse's catalog for reading, in UTC.

    Args:
        warehouse: the folder of the tables.
        as_of: a run_id: the tables as that run left them; None: as they are published now.

    Raises:
        WarehouseError: there is none, it cannot be read or has another format, the folder was moved
            since it was built, or what the run left was removed.
    """
    catalog = Layout(warehouse).catalog
    if not catalog.exists():
        read_manifest(warehouse)  # refuses another format, which cannot be rebuilt
        raise WarehouseError(
            f"no {catalog.name} in {warehouse}; run an archive first, or if it was lost: "
            f"{rebuild_command(warehouse)}"
        )
    connection = open_catalog(warehouse)
    [(built_for,)] = connection.execute("SELECT warehouse FROM manifest").fetchall()
    if Path(built_for) != warehouse.resolve():
        connection.close()
        raise WarehouseError(
            f"the warehouse was moved here from {built_for}; run: {rebuild_command(warehouse)}"
        )
    if as_of is not None:
        with connection as now:
            connection = _open_as_of(warehouse, as_of, now)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _open_as_of(
    warehouse: Path, run_id: str, now: duckdb.DuckDBPyConnection
) -> duckdb.DuckDBPyConnection:
    from kp_batch.warehouse.catalog import build_as_of  # imports delta-rs, which takes a while

    with tempfile.TemporaryDirectory() as folder:  # an open file outlives its name
        path = Layout(Path(folder)).catalog
        build_as_of(path, warehouse, run_id, now)
        return duckdb.connect(str(path), read_only=True)
