"""Builds kp.duckdb, the one file that says which version of each table is published.

It holds the manifest, the formulas as macros, and views over exactly the files of those versions.
It is built beside the old one and swapped in whole, so everyone sees all tables change at once, or
not at all.
"""

import json
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

import duckdb

from kp_batch.contracts import VIEWS
from kp_batch.errors import WarehouseError
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lock import writing
from kp_batch.warehouse.manifest import Manifest, manifest_as_of, read_manifest
from kp_batch.warehouse.relations import kept_files, parquet_relation, relation
from kp_batch.warehouse.tables import quoted

_SQL = files("kp_batch.warehouse").joinpath("sql")


def publish(warehouse: Path, manifest: Manifest) -> None:
    """Build the catalog for the manifest and swap it in: the last act of a run.

    Raises:
        WarehouseError: a table of the manifest is gone.
    """
    layout = Layout(warehouse)
    beside = _beside(layout.catalog)
    # Left by a killed run, or by somebody who wrote into the catalog.
    for path in (beside, *(Path(f"{each}.wal") for each in (beside, layout.catalog))):
        path.unlink(missing_ok=True)
    rows = {name: relation(warehouse, name, manifest.tables.get(name)) for name in VIEWS}
    build(beside, warehouse, manifest, rows)
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    beside.replace(layout.catalog)
    copy = _beside(layout.manifest)
    copy.write_text(json.dumps(manifest.as_row()), "utf-8")
    copy.replace(layout.manifest)


def rebuild(warehouse: Path) -> Manifest:
    """Build the catalog anew for where the warehouse stands now, even if kp.duckdb is lost.

    Raises:
        WarehouseError: nothing was ever published there, it has another format, or a run is
            writing.
    """
    manifest = read_manifest(warehouse)
    if manifest is None:
        layout = Layout(warehouse)
        raise WarehouseError(
            f"{warehouse} is no warehouse: it has neither {layout.catalog.name} nor "
            f"{layout.manifest.name}"
        )
    with writing(warehouse, wait=False):
        manifest = read_manifest(warehouse) or manifest
        publish(warehouse, manifest)
    return manifest


def build(path: Path, warehouse: Path, manifest: Manifest, rows: Mapping[str, str]) -> None:
    """Build a catalog: a DuckDB file with the manifest, the macros, the views and the questions.

    Args:
        path: the file, which must not exist yet.
        warehouse: the folder of the tables.
        manifest: what is published.
        rows: SQL for the rows of each view.
    """
    with duckdb.connect() as connection:
        # Clients of DuckDB 1.4 and later can open this format; the newest only by 2.0.
        connection.execute(f"ATTACH {quoted(str(path))} AS kp (STORAGE_VERSION 'v1.4.0')")
        connection.execute("USE kp")
        connection.execute(
            "CREATE TABLE manifest AS SELECT ?::INTEGER AS format_version, "
            "?::DOUBLE AS threshold, ?::VARCHAR AS tables, ?::VARCHAR AS warehouse",
            [*manifest.as_row(), str(warehouse.resolve())],
        )
        create_macros(connection)
        values = {**rows, "threshold": repr(manifest.threshold)}
        for name in VIEWS:
            view = _SQL.joinpath(f"{name}.sql").read_text("utf-8")
            connection.execute(Template(view).substitute(values))
        _execute_all(connection, "questions")
        connection.execute("USE memory")
        connection.execute("DETACH kp")


def build_as_of(path: Path, warehouse: Path, run_id: str, now: duckdb.DuckDBPyConnection) -> None:
    """Build a catalog of the tables as a run left them; its `runs` ends with that run.

    Args:
        path: the file, which must not exist yet.
        warehouse: the folder of the tables.
        run_id: of the run.
        now: the catalog as it is now.

    Raises:
        WarehouseError: there is no such run, or its tables were removed.
    """
    manifest = manifest_as_of(warehouse, run_id, now)
    rows = {
        name: parquet_relation(name, kept_files(warehouse, name, manifest, run_id))
        for name in VIEWS
    }
    [(tables,)] = now.execute("SELECT tables FROM manifest").fetchall()
    all_runs = relation(warehouse, "runs", json.loads(tables)["runs"])
    last = f"(SELECT started_at FROM {all_runs} WHERE run_id = {quoted(run_id)})"  # noqa: S608
    rows["runs"] = f"{all_runs} WHERE started_at <= {last}"
    build(path, warehouse, manifest, rows)


def create_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the formulas as macros in the connection's current database: see sql/macros."""
    _execute_all(connection, "macros")


def _execute_all(connection: duckdb.DuckDBPyConnection, folder: str) -> None:
    for file in sorted(_SQL.joinpath(folder).iterdir(), key=lambda each: each.name):
        connection.execute(file.read_text("utf-8"))


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")
