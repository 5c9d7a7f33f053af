"""Opens the catalog: as it is now, or as a run left it."""

import tempfile
from contextlib import suppress
from pathlib import Path

import duckdb

from kp_batch.errors import WarehouseError
from kp_batch.text import one_line
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, copy_catalog, require_manifest


def connect(warehouse: Path, as_of: str | None = None) -> duckdb.DuckDBPyConnection:
    """Open the warehouse's catalog for reading, in UTC, and write nothing into the warehouse.

    What manifest.json names is shown: by a copy of kp.duckdb if that shows it, else by a catalog
    of the connection's own.

    Args:
        warehouse: the folder of the tables.
        as_of: a run_id: the tables as that run left them; None: as they are published now.

    Raises:
        WarehouseError: nothing is published, it cannot be read or has another format, or what the
            run left was removed.
    """
    with tempfile.TemporaryDirectory() as folder:  # an open file outlives its name
        with suppress(OSError):
            copy_catalog(warehouse, folder)  # first: where the two differ, the manifest is newer
        manifest = require_manifest(warehouse)
        connection = _opened(folder, warehouse, manifest) or _built(warehouse, manifest)
    if as_of is not None:
        with connection as now:
            connection = _built_as_of(warehouse, as_of, now)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def is_current(warehouse: Path, manifest: Manifest) -> bool:
    """Whether kp.duckdb shows what the manifest names, where the warehouse stands now."""
    with tempfile.TemporaryDirectory() as folder:
        with suppress(OSError):
            copy_catalog(warehouse, folder)
        connection = _opened(folder, warehouse, manifest)
    if connection:
        connection.close()
    return connection is not None


def _opened(folder: str, warehouse: Path, manifest: Manifest) -> duckdb.DuckDBPyConnection | None:
    """Open the catalog in a folder; None unless it shows the manifest for this warehouse."""
    with suppress(duckdb.Error):  # it is none, or another program's
        connection = duckdb.connect(str(Layout(Path(folder)).catalog), read_only=True)
        found = connection.execute("SELECT publication, warehouse FROM manifest").fetchall()
        if found == [(manifest.publication, str(warehouse.resolve()))]:
            return connection
        connection.close()
    return None


# Both import delta-rs, which takes a while.


def _built(warehouse: Path, manifest: Manifest) -> duckdb.DuckDBPyConnection:
    from kp_batch.warehouse.catalog import build_published

    with tempfile.TemporaryDirectory() as folder:
        path = Layout(Path(folder)).catalog
        try:
            build_published(path, warehouse, manifest)
        except duckdb.Error as error:
            raise WarehouseError(f"{warehouse} cannot be read: {one_line(str(error))}") from error
        return duckdb.connect(str(path), read_only=True)


def _built_as_of(
    warehouse: Path, run_id: str, now: duckdb.DuckDBPyConnection
) -> duckdb.DuckDBPyConnection:
    from kp_batch.warehouse.catalog import build_as_of

    with tempfile.TemporaryDirectory() as folder:
        path = Layout(Path(folder)).catalog
        build_as_of(path, warehouse, run_id, now)
        return duckdb.connect(str(path), read_only=True)
