"""Open the catalog for queries: of what is published now, or was after a past run."""

import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from kp_batch.duck import literal, small_work, statement
from kp_batch.errors import WarehouseError
from kp_batch.stopping import stopped_by
from kp_batch.text import one_line
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, check_tables, copy_catalog, require_manifest
from kp_batch.warehouse.questions import catalog_id

if TYPE_CHECKING:
    from kp_batch.warehouse.snapshot import PublishedSnapshot


@contextmanager
def connect(warehouse: Path, as_of: str | None = None) -> Generator[duckdb.DuckDBPyConnection]:
    """Open the warehouse's catalog for reading, in UTC, and write nothing into the warehouse.

    It shows what manifest.json names. It is a copy of kp.duckdb if that is current; otherwise it is
    built for this connection in a temporary folder, where DuckDB also spills what does not fit into
    memory. For `as_of` see `published`.

    Raises:
        WarehouseError: nothing is published, it cannot be read or has another format, there is no
            such run, or its files were removed.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        _catalog(warehouse, folder, as_of) as connection,
        stopped_by(connection.interrupt),
    ):
        yield connection


@contextmanager
def connect_to(snapshot: "PublishedSnapshot") -> Generator[duckdb.DuckDBPyConnection]:
    """Open a catalog of some tables likewise; it is built in a temporary folder.

    Raises:
        WarehouseError: the tables cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        catalog = Layout(Path(folder)).catalog
        _build(catalog, snapshot)
        with _open(catalog) as connection, stopped_by(connection.interrupt):
            yield connection


def is_current(warehouse: Path, manifest: Manifest) -> bool:
    """Whether kp.duckdb is the catalog of a manifest, and of the warehouse's current path."""
    with (
        suppress(OSError, duckdb.Error),  # missing, damaged, or another program's
        tempfile.TemporaryDirectory() as folder,
        small_work() as connection,
    ):
        copy = literal(copy_catalog(warehouse, folder))
        connection.execute(statement("ATTACH $copy AS kp (READ_ONLY)", copy=copy))
        result = _shows(connection, warehouse, manifest)
        connection.execute("DETACH kp")
        return result
    return False


def _catalog(warehouse: Path, folder: str, as_of: str | None) -> duckdb.DuckDBPyConnection:
    """Copy the catalog into a folder and open it; if it is not the right one, build one there.

    It is opened once to check and to read it, because opening takes as long as a question.
    """
    catalog = Layout(Path(folder)).catalog
    if as_of is None:
        with suppress(OSError):
            copy_catalog(warehouse, folder)  # first: if the two differ, the manifest is newer
        manifest = require_manifest(warehouse)
        if catalog.exists():
            if connection := _open_current(catalog, warehouse, manifest):
                return connection
            catalog.unlink()
    # Imported late, because Polars and delta-rs take a while.
    from kp_batch.warehouse.snapshot import published

    _build(catalog, published(warehouse, as_of))
    return _open(catalog)


def _open_current(
    catalog: Path, warehouse: Path, manifest: Manifest
) -> duckdb.DuckDBPyConnection | None:
    """Open a catalog; None if it belongs to another manifest, warehouse or version of the SQL."""
    with suppress(duckdb.Error), ExitStack() as stack:  # damaged, or another program's
        connection = stack.enter_context(_open(catalog))
        if _shows(connection, warehouse, manifest):
            stack.pop_all()
            return connection
    return None


def _shows(connection: duckdb.DuckDBPyConnection, warehouse: Path, manifest: Manifest) -> bool:
    """Whether an open catalog belongs to a manifest, the warehouse's path and this SQL."""
    query = "SELECT publication, warehouse, catalog_id FROM kp.manifest"
    rows = connection.execute(query).fetchall()
    return rows == [(manifest.publication, str(warehouse.resolve()), catalog_id())]


def _open(catalog: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(catalog), read_only=True)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _build(catalog: Path, snapshot: "PublishedSnapshot") -> None:
    from kp_batch.warehouse.catalog import build_published

    try:
        build_published(catalog, snapshot)
    except duckdb.Error as error:
        check_tables(snapshot.manifest, snapshot.warehouse)
        raise WarehouseError(
            f"{shown(snapshot.warehouse)} cannot be read: {one_line(str(error))}"
        ) from error
