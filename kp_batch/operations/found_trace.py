"""Finds a published trace by what a user calls it."""

from pathlib import Path
from shlex import quote
from typing import Any

import polars as pl

from kp_batch.contracts import SCORES
from kp_batch.errors import WarehouseError
from kp_batch.facts import id_hash
from kp_batch.planning.state import State
from kp_batch.sql import set_variables, sql, statement
from kp_batch.text import encodable, shortened
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.relations import frame_of, parquet_relation

_NAMED = 3  # at most, where a beginning is not unique
_NAME = 80  # characters
_USUAL = "kp:trace:"  # begins most ids, and may be left out


def find_trace(warehouse: Path, state: State, name: str) -> dict[str, Any]:
    """Find the trace that a name means: its row of `scores`.

    Args:
        warehouse: the folder of the tables, for the message.
        state: what is published.
        name: its id, or the beginning of it alone, with `kp:trace:` or without it.

    Raises:
        WarehouseError: there is no such trace, which was rejected or forgotten, maybe; or several.
    """
    name = encodable(name)
    found = _beginning_with(state, name) if name else pl.DataFrame()
    if found.is_empty():
        missing = f"there is no trace '{shortened(name, _NAME)}' in {shown(warehouse)}"
        raise WarehouseError(f"{missing}{_why(state, name) or _listing(warehouse)}")
    ids = found.get_column("trace_id").to_list()
    if len(ids) > 1 and ids[0] not in {name, _USUAL + name}:
        more = " and more" if len(ids) > _NAMED else ""
        named = ", ".join(shortened(each, _NAME) for each in ids[:_NAMED])
        raise WarehouseError(
            f"'{shortened(name, _NAME)}' begins the ids of several traces in {shown(warehouse)}: "
            f"{named}{more}; write more of the one that you mean"
        )
    files = state.files_of_days([found.item(0, "created_at").date()])
    scores = parquet_relation("scores", files)
    query = statement("SELECT * FROM $scores WHERE trace_id = ?", scores=scores)
    row = frame_of(state.connection.sql(query, params=[ids[0]]))
    return row.cast({each: SCORES[each] for each in row.columns}).row(0, named=True)


def _beginning_with(state: State, name: str) -> pl.DataFrame:
    """Look on the days that the facts know, and on all others only where nothing is found."""
    set_variables(state.connection, name=name)
    known = state.ask(sql(__name__, "known_days.sql")).get_column("day").to_list()
    scores = parquet_relation("scores", state.files_of_days(known))
    found = state.ask(sql(__name__, "found_trace.sql", scores=scores))
    if found.is_empty():
        return state.ask(sql(__name__, "found_trace.sql", scores="published.scores"))
    return found


def _why(state: State, name: str) -> str:
    """Why a trace is not there; empty where that is not known."""
    names = pl.DataFrame({"trace_id": [name, _USUAL + name]})
    rejected = state.connection.execute(
        "SELECT source_file, message FROM published.rejects WHERE trace_id IN (?, ?) "
        'ORDER BY source_file, "row" LIMIT 1',
        names.get_column("trace_id").to_list(),
    ).fetchall()
    for source_file, message in rejected:
        return f": it was rejected, in {source_file}: {message}"
    hashes = names.select(id_hash()).to_series().to_list()
    forgotten = "SELECT count(*) FROM published.forgotten WHERE id_hash IN (?, ?)"
    if state.connection.execute(forgotten, hashes).fetchall() != [(0,)]:
        return ": it was forgotten"
    return ""


def _listing(warehouse: Path) -> str:
    where = quote(str(shown(warehouse)))
    return f'; list ids: kp-batch sql "SELECT trace_id FROM scores" --warehouse {where}'  # noqa: S608 (told, not asked)
