"""Opens the catalog: as it is now, or as a run left it."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from kp_batch.errors import WarehouseError
from kp_batch.text import one_line
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, copy_catalog, require_manifest
from kp_batch.warehouse.runs import find_run


@contextmanager
def connect(warehouse: Path, as_of: str | None = None) -> Generator[duckdb.DuckDBPyConnection]:
    """Open the warehouse's catalog for reading, in UTC, and write nothing into the warehouse.

    What manifest.json names is shown: by a copy of kp.duckdb if that shows it, else by a catalog
    of the connection's own. It stands in a temporary folder, where DuckDB also keeps what does not
    fit into its memory; the folder is removed when the context ends.

    Args:
        warehouse: the folder of the tables.
        as_of: a run, as `find_run` takes it: the tables as that run left them; None: as they are
            published now.

    Raises:
        WarehouseError: nothing is published, it cannot be read or has another format, there is no
            such run, or what it left was removed.
    """
    with tempfile.TemporaryDirectory() as folder:
        catalog = _published(warehouse, folder)
        if as_of is not None:
            catalog = _as_of(warehouse, as_of, catalog)
        with duckdb.connect(str(catalog), read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection


def is_current(warehouse: Path, manifest: Manifest) -> bool:
    """Whether kp.duckdb shows what the manifest names, where the warehouse stands now."""
    with tempfile.TemporaryDirectory() as folder, suppress(OSError):
        return _shows(copy_catalog(warehouse, folder), warehouse, manifest)
    return False


def _published(warehouse: Path, folder: str) -> Path:
    """Copy the catalog into a folder, or build one there if it does not show the manifest."""
    catalog = Layout(Path(folder)).catalog
    with suppress(OSError):
        copy_catalog(warehouse, folder)  # first: where the two differ, the manifest is newer
    manifest = require_manifest(warehouse)
    if not (catalog.exists() and _shows(catalog, warehouse, manifest)):
        catalog.unlink(missing_ok=True)
        _build(catalog, warehouse, manifest)
    return catalog


def _shows(catalog: Path, warehouse: Path, manifest: Manifest) -> bool:
    """Whether a catalog shows the manifest for this warehouse."""
    with (
        suppress(duckdb.Error),  # it is none, or another program's
        duckdb.connect(str(catalog), read_only=True) as connection,
    ):
        found = connection.execute("SELECT publication, warehouse FROM manifest").fetchall()
        return found == [(manifest.publication, str(warehouse.resolve()))]
    return False


# Both import delta-rs, which takes a while.


def _build(catalog: Path, warehouse: Path, manifest: Manifest) -> None:
    from kp_batch.warehouse.catalog import build_published

    try:
        build_published(catalog, warehouse, manifest)
    except duckdb.Error as error:
        raise WarehouseError(f"{warehouse} cannot be read: {one_line(str(error))}") from error


def _as_of(warehouse: Path, name: str, published: Path) -> Path:
    """Build a catalog of the tables as a run left them, beside that of what is published."""
    from kp_batch.warehouse.catalog import build_as_of

    beside = published.with_name("as-of")
    beside.mkdir()
    catalog = Layout(beside).catalog
    with duckdb.connect(str(published), read_only=True) as now:
        build_as_of(catalog, warehouse, find_run(warehouse, name, now), now)
    return catalog
