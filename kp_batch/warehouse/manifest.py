"""Which version of each table is published: the truth from which runs and readers start."""

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import duckdb

from kp_batch.errors import WarehouseError
from kp_batch.run_record import RunRecord
from kp_batch.text import one_line
from kp_batch.warehouse.layout import Layout

FORMAT_VERSION = 3


@dataclass(frozen=True)
class Manifest:
    """What is published."""

    threshold: float  # of the run that wrote the scores
    tables: dict[str, int]  # the published version of each Delta table that exists

    def as_row(self) -> list[Any]:
        """The format's version, the threshold, and the tables as JSON."""
        return [FORMAT_VERSION, self.threshold, json.dumps(self.tables)]


def open_catalog(warehouse: Path) -> duckdb.DuckDBPyConnection:
    """Open the warehouse's catalog as it is now, for reading.

    Opens a copy of the file: whoever holds the file itself open for writing, which is DuckDB's
    default, locks all others out.

    Raises:
        WarehouseError: it cannot be read, or has another format.
    """
    catalog = Layout(warehouse).catalog
    with tempfile.TemporaryDirectory() as folder:  # an open file outlives its name
        try:
            copy = shutil.copyfile(catalog, Path(folder) / catalog.name)
            connection = duckdb.connect(str(copy), read_only=True)
            [(version,)] = connection.execute("SELECT format_version FROM manifest").fetchall()
        except (OSError, duckdb.Error) as error:
            raise WarehouseError(
                f"{catalog} cannot be read ({one_line(str(error))}); remove it "
                f"and run: {rebuild_command(warehouse)}"
            ) from error
    _check_format(warehouse, version)
    return connection


def read_manifest(warehouse: Path) -> Manifest | None:
    """Read what is published, from the copy if the catalog is lost; None if nothing is.

    Raises:
        WarehouseError: the catalog cannot be read, or has another format.
    """
    layout = Layout(warehouse)
    if layout.catalog.exists():
        with open_catalog(warehouse) as connection:
            [row] = connection.execute("SELECT threshold, tables FROM manifest").fetchall()
    elif layout.manifest.exists():
        version, *row = json.loads(layout.manifest.read_text("utf-8"))
        _check_format(warehouse, version)
    else:
        return None
    threshold, tables = row
    return Manifest(threshold, json.loads(tables))


def require_manifest(warehouse: Path) -> Manifest:
    """Read what is published.

    Raises:
        WarehouseError: nothing is, or the catalog cannot be read, or has another format.
    """
    manifest = read_manifest(warehouse)
    if manifest is None:
        raise WarehouseError(f"{warehouse} is no warehouse; run an archive first")
    return manifest


def manifest_as_of(warehouse: Path, run_id: str, now: duckdb.DuckDBPyConnection) -> Manifest:
    """Read what was published when a run had ended, without the table of runs.

    Args:
        warehouse: the folder of the tables.
        run_id: of the run.
        now: the catalog as it is now.

    Raises:
        WarehouseError: there is no such run.
    """
    rows = now.sql("FROM runs WHERE run_id = ?", params=[run_id]).to_arrow_table().to_pylist()
    if not rows:
        raise WarehouseError(
            f"there is no run {run_id!r} in {warehouse}; "
            f"see: kp-batch runs --warehouse {quote(str(warehouse))}"
        )
    published = RunRecord.of(rows[0]).published
    tables = {name: version for name, version in published["tables"].items() if name != "runs"}
    return Manifest(published["threshold"], tables)


def rebuild_command(warehouse: Path) -> str:
    """The command that builds the catalog anew."""
    return f"kp-batch catalog --warehouse {quote(str(warehouse))}"


def _check_format(warehouse: Path, version: int) -> None:
    """Refuse another format; of an older one nothing but the vectors is worth keeping."""
    if version == FORMAT_VERSION:
        return
    found = (
        f"{warehouse} has format {version}, and this version of kp_batch writes format "
        f"{FORMAT_VERSION}"
    )
    if version > FORMAT_VERSION:
        raise WarehouseError(f"{found}; use a later version of kp_batch, or a new folder")
    layout, new = Layout(warehouse), f"{warehouse.absolute()}-format-{FORMAT_VERSION}"
    steps = [f"run the archive into a new folder, such as {quote(new)}"]
    if layout.all_vectors.exists():
        vectors = quote(str(layout.all_vectors.absolute()))
        steps.append(f"to keep its vectors, first: mkdir {quote(new)} && mv {vectors} {quote(new)}")
    if layout.table("forgotten").exists():
        steps.append("afterwards forget again what was forgotten, with kp-batch forget")
    raise WarehouseError(f"{found}; {'; '.join(steps)}")
