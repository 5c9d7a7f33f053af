"""Finds a run by what a user calls it, and what was published when it had ended."""

from dataclasses import replace
from pathlib import Path
from shlex import quote

import duckdb

from kp_batch.errors import WarehouseError
from kp_batch.run_record import RunRecord
from kp_batch.sql import statement
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.manifest import Manifest

_BY_PLACE = ("latest", "previous")  # macros of the catalog
_NAMED = 3  # at most, where a beginning is not unique


def find_run(warehouse: Path, name: str, now: duckdb.DuckDBPyConnection) -> RunRecord:
    """Find the run that a name means.

    Args:
        warehouse: the folder of the tables, for the message.
        name: a run_id, the beginning of one alone, `latest` (the last run that is done) or
            `previous` (the one that was done before it).
        now: the catalog as it is now.

    Raises:
        WarehouseError: there is no such run, or several.
    """
    see = f"see: kp-batch runs --warehouse {quote(shown(warehouse))}"
    found = _by_place(name, now) if name in _BY_PLACE else _by_beginning(name, now)
    if not found and name in _BY_PLACE:
        missing = "is done" if name == "latest" else "was done before the last one"
        raise WarehouseError(f"there is no {name} run in {shown(warehouse)}: none {missing}; {see}")
    if not found:
        raise WarehouseError(f"there is no run {name!r} in {shown(warehouse)}; {see}")
    if len(found) > 1:
        more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
        raise WarehouseError(
            f"{name!r} begins the names of {len(found):,} runs in {shown(warehouse)}: "
            f"{', '.join(found[:_NAMED])}{more}; write more of the one that you mean"
        )
    query = "SELECT * EXCLUDE (inputs) FROM runs WHERE run_id = ?"
    [row] = now.sql(query, params=found).to_arrow_table().to_pylist()
    return RunRecord.of(row)


def manifest_left(run: RunRecord) -> Manifest:
    """What was published when a run had ended, without the table of runs.

    Raises:
        WarehouseError: its row says what no run writes.
    """
    try:
        left = Manifest.read(run.settings, run.published["tables"])
    except (ValueError, LookupError, TypeError) as error:
        raise WarehouseError(
            f"what run {run.run_id!r} published is damaged in the table runs; restore the "
            "warehouse from a copy, or run the archive into a new folder"
        ) from error
    return replace(left, tables={name: left.tables[name] for name in left.tables if name != "runs"})


def _by_place(name: str, now: duckdb.DuckDBPyConnection) -> list[str]:
    return [
        each for (each,) in now.execute(statement("SELECT $name()", name=name)).fetchall() if each
    ]


def _by_beginning(name: str, now: duckdb.DuckDBPyConnection) -> list[str]:
    """The run of that id, else the runs whose ids begin so, the last one first."""
    query = "SELECT run_id FROM runs WHERE starts_with(run_id, ?) ORDER BY number DESC"
    found = [each for (each,) in now.execute(query, [name or None]).fetchall()]
    return [name] if name in found else found
