"""Finds a published trace by what a user calls it."""

from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.contracts import SCORES
from kp_batch.errors import WarehouseError
from kp_batch.facts import id_hash
from kp_batch.planning.state import State
from kp_batch.sql import sql
from kp_batch.text import shortened
from kp_batch.warehouse.places import shown
from kp_batch.warehouse.relations import frame_of, parquet_relation

_NAMED = 3  # at most, where a beginning is not unique
_NAME = 80  # characters


def find_trace(warehouse: Path, state: State, name: str) -> dict[str, Any]:
    """Find the trace that a name means: its row of `scores`.

    Args:
        warehouse: the folder of the tables, for the message.
        state: what is published.
        name: its id, or the beginning of it alone, with `kp:trace:` or without it.

    Raises:
        WarehouseError: there is no such trace, which was rejected or forgotten, maybe; or several.
    """
    state.connection.execute("SET VARIABLE name = ?", [name])
    found = state.ask(sql(__name__, "found_trace.sql"))
    ids = found.get_column("trace_id").to_list() if name else []
    if not ids:
        missing = f"there is no trace {_quoted(name)} in {shown(warehouse)}"
        raise WarehouseError(f"{missing}{_why(state, name)}")
    if len(ids) > 1 and ids[0] != name:
        more = " and more" if len(ids) > _NAMED else ""
        raise WarehouseError(
            f"{_quoted(name)} begins the ids of several traces in {shown(warehouse)}: "
            f"{', '.join(ids[:_NAMED])}{more}; write more of the one that you mean"
        )
    files = state.files_of_days([found.item(0, "created_at").date()])
    rows = parquet_relation("scores", files)
    query = f"SELECT * FROM {rows} WHERE trace_id = ?"  # noqa: S608 (our own paths)
    row = frame_of(state.connection.sql(query, params=[ids[0]]))
    return row.cast({each: SCORES[each] for each in row.columns}).row(0, named=True)


def _why(state: State, name: str) -> str:
    """Why a trace is not there, as far as that is known, and what to do."""
    rejected = state.connection.execute(
        "SELECT source_file, message FROM published.rejects WHERE trace_id = ? LIMIT 1", [name]
    ).fetchall()
    for source_file, message in rejected:
        return f": it was rejected, in {source_file}: {message}"
    digest = pl.select(trace_id=pl.lit(name)).select(id_hash()).item()
    forgotten = "SELECT count(*) FROM published.forgotten WHERE id_hash = ?"
    if state.connection.execute(forgotten, [digest]).fetchall() != [(0,)]:
        return ": it was forgotten"
    return '; list ids by asking: kp-batch sql "SELECT trace_id FROM scores"'


def _quoted(name: str) -> str:
    return repr(shortened(name, _NAME))
