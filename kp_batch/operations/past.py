"""How the score of one trace came to differ over the runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from kp_batch.contracts import SCORES
from kp_batch.errors import WarehouseError
from kp_batch.operations.explained import Past
from kp_batch.planning.state import State
from kp_batch.run_record import RunRecord, done_runs
from kp_batch.sql import sql, statement
from kp_batch.warehouse.data_files import partition_of
from kp_batch.warehouse.relations import frame_of, kept_files, parquet_relation
from kp_batch.warehouse.runs import manifest_left

_MOST = 10  # runs that are told
_PARTS = ("change", "from_facts", "from_novelty", "from_weights", "from_overrides")


class _Scored(NamedTuple):
    """A trace as a run scored it."""

    run: RunRecord
    row: pl.DataFrame
    profiles: pl.DataFrame


def past(
    warehouse: Path, state: State, row: dict[str, Any], runs: Sequence[RunRecord]
) -> tuple[Past, ...]:
    """Tell which runs changed a score, the last one first, as far back as their tables are kept.

    A row names the run that scored it last, so only the states before such runs are looked at. A
    trace whose time changed is not followed further back.

    Args:
        warehouse: the folder of the tables.
        state: what is published.
        row: the trace's, of `scores`.
        runs: all runs.
    """
    scored = list(_scored(warehouse, state, row, done_runs(runs)))
    for schema in ("first", "second"):
        state.connection.execute(statement("CREATE SCHEMA IF NOT EXISTS $schema", schema=schema))
    told = [_moved(state, *pair) for pair in zip(scored, [*scored[1:], None], strict=True)]
    return tuple(told[:_MOST])


def _scored(
    warehouse: Path, state: State, row: dict[str, Any], done: Sequence[RunRecord]
) -> Iterator[_Scored]:
    """The trace as it is, and as each run left it before one that scored it anew."""
    places = {run.run_id: place for place, run in enumerate(done)}
    now = pl.DataFrame([row], schema_overrides={each: SCORES[each] for each in row})
    profiles = state.table("profiles")
    for _ in range(_MOST + 1):
        place = None if now.is_empty() else places.get(now.item(0, "run_id"))
        if place is None:
            return
        yield _Scored(done[place], now, profiles)
        if place == 0:
            return
        try:
            now, profiles = _left_by(warehouse, state, row, done[place - 1])
        except WarehouseError:  # its tables were removed
            return


def _left_by(
    warehouse: Path, state: State, row: dict[str, Any], run: RunRecord
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The trace's row and all profiles as a run left them.

    Raises:
        WarehouseError: they were removed.
    """
    manifest, day = manifest_left(run), row["created_at"].date()
    scores, profiles = (
        kept_files(warehouse, name, manifest, run.run_id) for name in ("scores", "profiles")
    )
    of_day = [path for path in scores if partition_of("scores", path) == day]
    query = statement(
        "SELECT * FROM $scores WHERE trace_id = ?", scores=parquet_relation("scores", of_day)
    )
    then = frame_of(state.connection.sql(query, params=[row["trace_id"]]))
    rows = statement("FROM $profiles", profiles=parquet_relation("profiles", profiles))
    return then, frame_of(state.connection.sql(rows))


def _moved(state: State, new: _Scored, old: _Scored | None) -> Past:
    parts: dict[str, float | None] = dict.fromkeys(_PARTS)
    if old:
        for schema, scored in (("first", old), ("second", new)):
            for name in ("scores", "profiles"):
                rows = scored.row if name == "scores" else scored.profiles
                state.connection.register("rows", rows.to_arrow())
                made = statement(
                    "CREATE OR REPLACE TABLE $schema.$name AS FROM rows", schema=schema, name=name
                )
                state.connection.execute(made)
                state.connection.unregister("rows")
        state.connection.execute(sql(__name__, "moves.sql"))
        parts = state.ask("FROM moves").select(_PARTS).row(0, named=True)
    return Past(
        run_id=new.run.run_id,
        finished_at=new.run.finished_at.isoformat(),
        score=new.row.item(0, "score"),
        **parts,
        reasons=tuple(_reasons(new, old)),
    )


def _reasons(new: _Scored, old: _Scored | None) -> Iterator[str]:
    """Why the run had anything to do, as far as it may concern this trace."""
    rows = [new.row, *([old.row] if old else [])]
    weighted_by = {row.item(0, name) for row in rows for name in ("task_domain", "profile")}
    for each in new.run.changes:
        if each["code"] != "weights" or each["of"] in weighted_by:
            yield each["words"]
