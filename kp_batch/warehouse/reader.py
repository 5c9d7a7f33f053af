"""The tables as an earlier run left them."""

import json
import tempfile
from pathlib import Path
from shlex import quote

import duckdb

from kp_batch.contracts import VIEWS
from kp_batch.errors import WarehouseError
from kp_batch.warehouse.answers import CATALOG
from kp_batch.warehouse.catalog import Manifest, build
from kp_batch.warehouse.relations import reading
from kp_batch.warehouse.tables import files_of, quoted


def manifest_of(warehouse: Path, run_id: str, now: duckdb.DuckDBPyConnection) -> Manifest:
    """What was published when a run had ended; without `runs`, of which there is only one.

    Args:
        warehouse: the folder of the tables.
        run_id: of the run.
        now: the catalog as it is now.

    Raises:
        WarehouseError: there is no such run.
    """
    rows = now.execute("SELECT published FROM runs WHERE run_id = ?", [run_id]).fetchall()
    if not rows:
        raise WarehouseError(
            f"there is no run {run_id!r} in {warehouse}; "
            f"see: kp-batch runs --warehouse {quote(str(warehouse))}"
        )
    published = json.loads(rows[0][0])
    tables = {name: version for name, version in published["tables"].items() if name != "runs"}
    return Manifest(published["threshold"], tables)


def open_as_of(
    warehouse: Path, run_id: str, now: duckdb.DuckDBPyConnection
) -> duckdb.DuckDBPyConnection:
    """A catalog of the tables as a run left them; `runs` ends with that run.

    Raises:
        WarehouseError: there is no such run, or its tables were removed.
    """
    manifest = manifest_of(warehouse, run_id, now)
    rows = {name: reading(name, kept_files(warehouse, name, manifest, run_id)) for name in VIEWS}
    [(tables,)] = now.execute("SELECT tables FROM manifest").fetchall()
    all_runs = reading("runs", files_of(warehouse.resolve(), "runs", json.loads(tables)["runs"]))
    last = f"(SELECT started_at FROM {all_runs} WHERE run_id = {quoted(run_id)})"  # noqa: S608
    rows["runs"] = f"{all_runs} WHERE started_at <= {last}"
    with tempfile.TemporaryDirectory() as folder:  # an open file outlives its name
        path = Path(folder) / CATALOG
        build(path, warehouse, manifest, rows)
        return duckdb.connect(str(path), read_only=True)


def kept_files(warehouse: Path, name: str, manifest: Manifest, run_id: str) -> list[Path]:
    """The files of a table as a run left it.

    Raises:
        WarehouseError: they were removed.
    """
    paths = files_of(warehouse.resolve(), name, manifest.tables.get(name))
    if not all(path.exists() for path in paths):
        raise WarehouseError(
            f"the tables as run {run_id} left them were removed (by kp-batch vacuum or forget); "
            "ask of a later run"
        )
    return paths
