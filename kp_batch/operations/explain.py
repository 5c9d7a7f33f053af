"""Explains why one published trace has its score."""

from contextlib import suppress
from pathlib import Path

import polars as pl

from kp_batch.dimensions import DIMENSIONS
from kp_batch.embedding.minilm import MiniLM
from kp_batch.errors import EncoderError
from kp_batch.operations.cache_window import similar
from kp_batch.operations.explained import Counts, Explanation, Neighbour, Row
from kp_batch.operations.found_trace import find_trace
from kp_batch.operations.met import meet
from kp_batch.operations.past import past
from kp_batch.operations.trace_contents import Content, beside, read_contents
from kp_batch.planning.state import State
from kp_batch.scoring.breakdown import breakdowns
from kp_batch.scoring.composite import scores_by_profile
from kp_batch.scoring.profiles import WeightProfile, parse_profiles
from kp_batch.staging import Staging
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.relations import run_records

_AS_PUBLISHED = (
    *("trace_id", "task_domain", "agent_id", "framework", "success", "source_file", "run_id"),
    *("recorded_score", "encoder_id", "cache_id", "cache_group", "max_similarity"),
)


def explain(warehouse: Path, name: str) -> Explanation:
    """Explain why a published trace has its score.

    Its row is as it was published; what it holds, and what the traces hold that it met, is read
    again from the archive. What it met is found again by stored vectors.

    Args:
        warehouse: the folder of the tables.
        name: of the trace, as `find_trace` takes it.

    Raises:
        WarehouseError: it is no warehouse, or there is no such trace.
    """
    published = require_manifest(warehouse)
    runs = run_records(warehouse, published.tables.get("runs"))
    with (
        Staging.temporary() as staging,
        State(warehouse, published.tables, staging) as state,
    ):
        row = find_trace(warehouse, state, name)
        scored = pl.DataFrame([row])
        met = meet(warehouse, state, row)
        contents = read_contents(state, row, (other for other, _ in met.nearest))
        own = contents[row["trace_id"]]
        settings = parse_profiles(published.settings["profiles"], "the warehouse")
        in_force = settings.in_force(row["created_at"])
        return Explanation(
            **{each: row[each] for each in _AS_PUBLISHED},
            created_at=row["created_at"].isoformat(),
            row=own.row,
            unread=own.unread,
            objective=own.facts["objective"] if own.facts else None,
            steps=own.steps,
            is_cut=_is_cut(row["encoder_id"], own),
            counts=Counts.of(own.facts or row),
            breakdown=breakdowns(scored, _profiles(state))[0],
            threshold=published.threshold,
            weights_from=version.date if (version := in_force.get(row["profile"])) else None,
            by_profile=scores_by_profile(scored, settings.at(row["created_at"]))[0],
            held=met.held,
            neighbours=tuple(
                _neighbour(row, other, similarity, own, contents[other["trace_id"]])
                for other, similarity in met.nearest
            ),
            unmet=met.unmet,
            history=past(warehouse, state, row, runs),
        )


def _is_cut(encoder_id: str, own: Content) -> bool | None:
    """Whether the encoder read the text's beginning alone, where that can be told."""
    if own.facts is None or not encoder_id.startswith("minilm-"):
        return None
    with suppress(EncoderError):  # its files are gone
        return MiniLM().cuts(own.facts["text"])
    return None


def _profiles(state: State) -> list[WeightProfile]:
    rows = state.table("profiles").select("name", *DIMENSIONS).iter_rows()
    return [WeightProfile(*each) for each in rows]


def _neighbour(
    row: Row, other: Row, similarity: float, own: Content, content: Content
) -> Neighbour:
    own_text, text = beside(own, content)
    return Neighbour(
        **similar(other, similarity, row["created_at"]),
        is_same_text=other["text_hash"] == row["text_hash"],
        text=text,
        own_text=own_text,
        unread=content.unread or own.unread,
    )
