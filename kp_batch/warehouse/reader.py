"""Opens the catalog for its questions: as it is published now, or as a run left it."""

import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import duckdb

from kp_batch.errors import WarehouseError
from kp_batch.text import one_line
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, copy_catalog, require_manifest
from kp_batch.warehouse.questions import catalog_id


@contextmanager
def connect(warehouse: Path, as_of: str | None = None) -> Generator[duckdb.DuckDBPyConnection]:
    """Open the warehouse's catalog for reading, in UTC, and write nothing into the warehouse.

    What manifest.json names is shown: by a copy of kp.duckdb if that shows it, else by a catalog
    of the connection's own. It stands in a temporary folder, where DuckDB also keeps what does not
    fit into its memory; the folder is removed when the context ends.

    Args:
        warehouse: the folder of the tables.
        as_of: a run, as `published` takes it: the tables as that run left them; None: as they are
            published now.

    Raises:
        WarehouseError: nothing is published, it cannot be read or has another format, there is no
            such run, or what it left was removed.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        _catalog(warehouse, folder, as_of) as connection,
    ):
        yield connection


def is_current(warehouse: Path, manifest: Manifest) -> bool:
    """Whether kp.duckdb shows what the manifest names, where the warehouse stands now."""
    with tempfile.TemporaryDirectory() as folder, suppress(OSError):
        connection = _opened(copy_catalog(warehouse, folder), warehouse, manifest)
        if connection:
            connection.close()
        return connection is not None
    return False


def _catalog(warehouse: Path, folder: str, as_of: str | None) -> duckdb.DuckDBPyConnection:
    """Open a copy of the catalog in a folder, or one built there if that does not show what is to.

    It is opened once for both, to be looked at and to be read: that takes as long as a question.
    """
    catalog = Layout(Path(folder)).catalog
    if as_of is None:
        with suppress(OSError):
            copy_catalog(warehouse, folder)  # first: where the two differ, the manifest is newer
        manifest = require_manifest(warehouse)
        if catalog.exists():
            if connection := _opened(catalog, warehouse, manifest):
                return connection
            catalog.unlink()
    _build(catalog, warehouse, as_of)
    return _in_utc(catalog)


def _opened(catalog: Path, warehouse: Path, manifest: Manifest) -> duckdb.DuckDBPyConnection | None:
    """Open a catalog; None if it does not show the manifest for this warehouse, by today's SQL."""
    with suppress(duckdb.Error), ExitStack() as closing:  # it is none, or another program's
        connection = closing.enter_context(_in_utc(catalog))
        query = "SELECT publication, warehouse, catalog_id FROM manifest"
        found = connection.execute(query).fetchall()
        if found == [(manifest.publication, str(warehouse.resolve()), catalog_id())]:
            closing.pop_all()
            return connection
    return None


def _in_utc(catalog: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(catalog), read_only=True)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _build(catalog: Path, warehouse: Path, as_of: str | None) -> None:
    # Imported only here: these take a while, with Polars and delta-rs.
    from kp_batch.warehouse.catalog import build_published
    from kp_batch.warehouse.snapshot import published

    try:
        build_published(catalog, published(warehouse, as_of))
    except duckdb.Error as error:
        raise WarehouseError(
            f"{shown(warehouse)} cannot be read: {one_line(str(error))}"
        ) from error
