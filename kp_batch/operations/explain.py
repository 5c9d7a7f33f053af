"""Explains why one published trace has its score."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.archive.formats.json_values import rows_from_objects
from kp_batch.archive.validation import reasons
from kp_batch.errors import WarehouseError
from kp_batch.facts import with_facts
from kp_batch.ingest.again import Place, Trace, find_places, read_again
from kp_batch.novelty.nearest import Nearby
from kp_batch.novelty.settings import CacheSettings
from kp_batch.operations.breaking_down import counts_of, scores_by_profile
from kp_batch.operations.cache_window import CacheWindow, Moment, similar, stored_vectors
from kp_batch.operations.explained import Explanation, Held, Neighbour, Step
from kp_batch.operations.found_trace import find_trace
from kp_batch.operations.past import past
from kp_batch.operations.shared_text import shared_pieces
from kp_batch.planning.scorer import NO_FINGERPRINT
from kp_batch.planning.state import State
from kp_batch.scoring.breakdown import breakdowns
from kp_batch.scoring.profiles import WeightProfile, parse_profiles
from kp_batch.staging import Staging
from kp_batch.unread import Unread
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.relations import run_records

_NEIGHBOURS = 5
_CONTENT = 200  # characters of a step
_TEXT = 1_000  # characters of a text that stands beside another one

Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Met:
    """What the cache held when a trace came, and what of it the trace resembles."""

    held: Held | None
    nearest: pl.DataFrame  # the columns of cache_window.sql and `similarity`
    unmet: str | None


@dataclass(frozen=True)
class _Content:
    """What a trace holds, read again."""

    row: int | None = None
    facts: Row | None = None  # the columns of `with_facts`
    unread: Unread | None = None


def explain(warehouse: Path, staging: Staging, name: str) -> Explanation:
    """Explain why a published trace has its score.

    Its row is as it was published; what it held, and what the traces that it met held, is read
    again from the archive. What it met is found again by stored vectors.

    Args:
        warehouse: the folder of the tables.
        staging: takes what does not fit into memory.
        name: of the trace, as `find_trace` takes it.

    Raises:
        WarehouseError: it is no warehouse, or there is no such trace.
    """
    published = require_manifest(warehouse)
    runs = run_records(warehouse, published.tables.get("runs"))
    with State(warehouse, published.tables, staging) as state:
        row = find_trace(warehouse, state, name)
        met = _met(warehouse, state, row)
        contents = _contents(state, row, met.nearest)
        own = contents[row["trace_id"]]
        [breakdown] = breakdowns(pl.DataFrame([row]), _profiles(state))
        in_force = parse_profiles(published.settings["profiles"], "the warehouse")
        return Explanation(
            trace_id=row["trace_id"],
            created_at=row["created_at"].isoformat(),
            task_domain=row["task_domain"],
            agent_id=row["agent_id"],
            framework=row["framework"],
            success=row["success"],
            source_file=row["source_file"],
            row=own.row,
            unread=own.unread,
            objective=own.facts["objective"] if own.facts else None,
            steps=_steps(own.facts) if own.facts else None,
            counts=counts_of(own.facts or row),
            breakdown=breakdown,
            threshold=published.threshold,
            recorded_score=row["recorded_score"],
            by_profile=scores_by_profile(row, in_force),
            encoder_id=row["encoder_id"],
            cache_id=row["cache_id"],
            max_similarity=row["max_similarity"],
            held=met.held,
            neighbours=tuple(
                _neighbour(row, each, own, contents[each["trace_id"]])
                for each in met.nearest.to_dicts()
            ),
            unmet=met.unmet,
            history=past(warehouse, state, row, runs),
            run_id=row["run_id"],
        )


def _profiles(state: State) -> list[WeightProfile]:
    rows = state.table("profiles").drop("profile_id").iter_rows(named=True)
    return [WeightProfile(**each) for each in rows]


def _met(warehouse: Path, state: State, row: Row) -> _Met:
    nobody = pl.DataFrame(schema={"trace_id": pl.String})
    if row["encoder_id"] == NO_FINGERPRINT:
        return _Met(None, nobody, "it was scored without an encoder: every novelty is 0.5")
    settings = CacheSettings.of(row["cache_id"])
    moment = Moment(row["created_at"], row["trace_id"])
    window = CacheWindow(warehouse, state, row["encoder_id"], settings, moment)
    held = window.held()
    vectors = stored_vectors(warehouse, state, row["encoder_id"], [row["text_hash"]])
    if not vectors:
        return _Met(held, nobody, "its vector is not stored any more; run again")
    try:
        nearby = window.nearby(vectors[row["text_hash"]], _NEIGHBOURS)
    except WarehouseError as error:
        return _Met(held, nobody, f"what it met is not known any more: {error}")
    nearest = window.rows(nearby)
    return _Met(held, nearest, _unmet(row, nearby, nearest))


def _unmet(row: Row, nearby: Nearby, nearest: pl.DataFrame) -> str | None:
    """Why these are not what it met, None if they are."""
    if nearby.max_similarity is None and row["max_similarity"] is None:
        return "the cache was empty: novelty is 0.5"
    if nearby.max_similarity != row["max_similarity"]:
        was = row["max_similarity"]
        return "what came before it has changed since it was scored" + (
            "" if was is None else f", when the greatest similarity was {was:.4f}"
        )
    if nearest.is_empty() or row["nearest_trace_id"] is None:
        return "its vector, or one that it met, is zero: such a one is similar by 0"
    return None


def _contents(state: State, row: Row, nearest: pl.DataFrame) -> dict[str, _Content]:
    """Read a trace and those nearest to it again, by trace_id."""
    needed = ("trace_id", "source_file", "content_hash")
    wanted = pl.DataFrame([{name: row[name] for name in needed}])
    if not nearest.is_empty():
        wanted = pl.concat([wanted, nearest.select(needed)])
    state.connection.register("wanted", wanted.to_arrow())
    places = find_places(state.connection, "wanted", "published.files", "published.facts")
    state.connection.unregister("wanted")
    contents: dict[str, _Content] = {}

    def unread(place: Place, why: Unread) -> None:
        contents[place.trace_id] = _Content(unread=why)

    for batch in read_again(places, unread):
        for place, trace in batch:
            contents[place.trace_id] = _Content(place.row, _facts(trace))
    return contents


def _facts(trace: Trace) -> Row:
    return with_facts(rows_from_objects("", [(0, trace)]), reasons()).row(0, named=True)


def _steps(facts: Row) -> tuple[Step, ...]:
    columns = ("step_types", "step_tools", "step_contents")
    return tuple(
        Step(kind, tool or None, (content or "")[:_CONTENT])
        for kind, tool, content in zip(*(facts[each] for each in columns), strict=True)
    )


def _neighbour(row: Row, nearest: Row, own: _Content, other: _Content) -> Neighbour:
    text = own_text = None
    if own.facts and other.facts:
        own_text, text = shared_pieces(own.facts["text"][:_TEXT], other.facts["text"][:_TEXT])
    return Neighbour(
        **similar(nearest, row["created_at"]),
        text=text,
        own_text=own_text,
        unread=other.unread or own.unread,
    )
