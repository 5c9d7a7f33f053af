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
from string import Template

import duckdb

from kp_batch.contracts import VIEWS
from kp_batch.errors import WarehouseError
from kp_batch.warehouse.answers import CATALOG, open_catalog
from kp_batch.warehouse.lock import writing
from kp_batch.warehouse.relations import relation
from kp_batch.warehouse.tables import quoted

FORMAT_VERSION = 2
_COPY = "manifest.json"  # of what was published last, for a catalog that is lost


@dataclass(frozen=True)
class Manifest:
    """What is published: the truth from which planning and readers start."""

    threshold: float  # of the run that wrote the scores
    tables: dict[str, int]  # the version of each Delta table that there is


def read_manifest(warehouse: Path) -> Manifest | None:
    """What is published in the warehouse, also where the catalog is lost; None where nothing is.

    Raises:
        WarehouseError: the catalog cannot be read, or a later version of kp_batch made it.
    """
    if (warehouse / CATALOG).exists():
        with open_catalog(warehouse) as connection:
            [row] = connection.execute(
                "SELECT format_version, threshold, tables FROM manifest"
            ).fetchall()
    elif (warehouse / _COPY).exists():
        row = json.loads((warehouse / _COPY).read_text("utf-8"))
    else:
        return None
    if row[0] != FORMAT_VERSION:
        raise WarehouseError(
            f"{warehouse} was made by another version of kp_batch; use that one, or a new warehouse"
        )
    return Manifest(row[1], json.loads(row[2]))


def require_manifest(warehouse: Path) -> Manifest:
    """What is published in the warehouse.

    Raises:
        WarehouseError: nothing is, or the catalog cannot be read.
    """
    manifest = read_manifest(warehouse)
    if manifest is None:
        raise WarehouseError(f"{warehouse} is no warehouse; run an archive first")
    return manifest


def publish(warehouse: Path, manifest: Manifest) -> None:
    """Build the catalog for the manifest and swap it in: the last act of a run.

    Raises:
        WarehouseError: a table of the manifest is gone.
    """
    path, beside = warehouse / CATALOG, warehouse / f"{CATALOG}.new"
    for left in (beside, *(Path(f"{each}.wal") for each in (beside, path))):
        left.unlink(missing_ok=True)  # by a killed run, or by somebody who wrote into the catalog
    rows = {name: relation(warehouse, name, manifest.tables.get(name)) for name in VIEWS}
    build(beside, warehouse, manifest, rows)
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    beside.replace(path)
    copy = warehouse / f"{_COPY}.new"
    copy.write_text(json.dumps(_row(manifest)), "utf-8")
    copy.replace(warehouse / _COPY)


def rebuild(warehouse: Path) -> Manifest:
    """Make the catalog anew for where the warehouse stands now, also where kp.duckdb is lost.

    Raises:
        WarehouseError: nothing was ever published there, or a run is writing.
    """
    manifest = read_manifest(warehouse)
    if manifest is None:
        raise WarehouseError(f"{warehouse} is no warehouse: it has neither {CATALOG} nor {_COPY}")
    with writing(warehouse, wait=False):
        manifest = read_manifest(warehouse) or manifest
        publish(warehouse, manifest)
    return manifest


def _row(manifest: Manifest) -> tuple[int, float, str]:
    return (FORMAT_VERSION, manifest.threshold, json.dumps(manifest.tables))


def build(path: Path, warehouse: Path, manifest: Manifest, rows: Mapping[str, str]) -> None:
    """Make a catalog: a DuckDB file with the manifest, and a view of each table.

    Args:
        path: the file, which is not there yet.
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
            [*_row(manifest), str(warehouse.resolve())],
        )
        values = {**rows, "threshold": repr(manifest.threshold)}
        folder = files("kp_batch.warehouse").joinpath("sql")
        for name in VIEWS:
            view = folder.joinpath(f"{name}.sql").read_text("utf-8")
            connection.execute(Template(view).substitute(values))
        questions = folder.joinpath("questions").iterdir()
        for question in sorted(questions, key=lambda each: each.name):
            connection.execute(question.read_text("utf-8"))
        connection.execute("USE memory")
        connection.execute("DETACH kp")
