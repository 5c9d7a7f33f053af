"""Tells why one published trace has its score: each field, and what it is computed from."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import polars as pl

from kp_batch.dimensions import DIMENSIONS, Breakdown, Counts
from kp_batch.duck import set_variables, statement
from kp_batch.embedding.minilm import MiniLM
from kp_batch.errors import EncoderError, Unread, WarehouseError
from kp_batch.facts import id_hash
from kp_batch.operations.explain.neighbours import Neighbour, cache_hits, neighbour
from kp_batch.operations.explain.score_history import ScoreChange, score_history
from kp_batch.operations.explain.texts import Content, Step, read_contents
from kp_batch.operations.warehouse_cache import CacheContents
from kp_batch.planning.snapshot import OpenSnapshot, open_snapshot
from kp_batch.runs.staging import Staging
from kp_batch.schemas import SCORES
from kp_batch.scoring.composite import breakdowns, scores_by_profile
from kp_batch.scoring.profiles import WeightProfile, parse_profiles
from kp_batch.text import encodable, shortened
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.snapshot import frame_of, published

_NAMED = 3  # at most, where a beginning is not unique
_NAME = 80  # characters
_USUAL = "kp:trace:"  # begins most ids, and may be left out
# The days on which traces were made that a name may mean, by the facts: these are few files.
_KNOWN_DAYS = """
    SELECT DISTINCT day_of(created_at) AS day
    FROM published.facts
    WHERE len(reasons) = 0
        AND (
            starts_with(trace_id, getvariable('name'))
            OR starts_with(trace_id, 'kp:trace:' || getvariable('name'))
        )
"""
# The traces that a name may mean: an id, or the beginning of one; what is one comes first.
_MEANT = """
    SELECT trace_id, created_at
    FROM $scores
    WHERE starts_with(trace_id, getvariable('name'))
        OR starts_with(trace_id, 'kp:trace:' || getvariable('name'))
    ORDER BY
        trace_id <> getvariable('name'),
        trace_id <> 'kp:trace:' || getvariable('name'),
        trace_id
    LIMIT 4
"""


@dataclass(frozen=True)
class Explanation:
    """Why a published trace has its score; its fields stand in the order of their JSON."""

    trace_id: str
    created_at: str  # ISO 8601, UTC
    task_domain: str
    agent_id: str | None
    framework: str | None
    success: bool
    source_file: str
    row: int | None  # in the file, from 0; null where it is not known any more
    unread: Unread | None  # why the following two are null
    objective: str | None
    steps: tuple[Step, ...] | None
    is_cut: bool | None  # whether its encoder reads the text's beginning alone; null: not known
    counts: Counts
    breakdown: Breakdown
    threshold: float  # 0..1
    recorded_score: float | None  # what the live engine gave it
    weights_from: str | None  # the day or time from which its weights hold; null: always
    by_profile: dict[str, float]  # the score under each profile in force at created_at
    encoder_id: str
    cache_id: str
    cache_group: str | None  # JSON of what tells its cache from others; null: one for all
    max_similarity: float | None  # null where the cache was empty
    held: CacheContents | None  # null without an encoder
    neighbours: tuple[Neighbour, ...]  # the most similar first
    unmet: str | None  # why there are none, or why they are not those that it met
    history: tuple[ScoreChange, ...]  # the last run that changed it first
    run_id: str  # of the run that last scored it


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
    with (
        Staging.temporary() as staging,
        open_snapshot(published(warehouse), staging) as snapshot,
    ):
        row = find_trace(snapshot, name)
        met = cache_hits(snapshot, row)
        contents = read_contents(snapshot, row, (other for other, _ in met.nearest))
        own = contents[row["trace_id"]]
        scored = pl.DataFrame([row])
        profiles = snapshot.scan("profiles").select("name", *DIMENSIONS).collect().iter_rows()
        settings = parse_profiles(snapshot.manifest.settings["profiles"], "the warehouse")
        in_force = settings.in_force(row["created_at"])
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
            steps=own.steps,
            is_cut=_is_cut(row["encoder_id"], own),
            counts=Counts.of(own.facts or row),
            breakdown=breakdowns(scored, (WeightProfile(*each) for each in profiles))[0],
            threshold=snapshot.manifest.threshold,
            recorded_score=row["recorded_score"],
            weights_from=version.date if (version := in_force.get(row["profile"])) else None,
            by_profile=scores_by_profile(scored, settings.at(row["created_at"]))[0],
            encoder_id=row["encoder_id"],
            cache_id=row["cache_id"],
            cache_group=row["cache_group"],
            max_similarity=row["max_similarity"],
            held=met.held,
            neighbours=tuple(
                neighbour(row, other, similarity, own, contents[other["trace_id"]])
                for other, similarity in met.nearest
            ),
            unmet=met.unmet,
            history=score_history(snapshot, row),
            run_id=row["run_id"],
        )


def _is_cut(encoder_id: str, own: Content) -> bool | None:
    """Whether the encoder read the text's beginning alone, where that can be told."""
    if own.facts is None or not encoder_id.startswith("minilm-"):
        return None
    with suppress(EncoderError):  # its files are gone
        return MiniLM().cuts(own.facts["text"])
    return None


def find_trace(snapshot: OpenSnapshot, name: str) -> dict[str, Any]:
    """Find the trace that a name means: its row of `scores`.

    Args:
        snapshot: what is published.
        name: its id, or the beginning of it alone, with `kp:trace:` or without it.

    Raises:
        WarehouseError: there is no such trace, which was rejected or forgotten, maybe; or several.
    """
    name, where = encodable(name), shown(snapshot.warehouse)
    found = _beginning_with(snapshot, name) if name else pl.DataFrame()
    if found.is_empty():
        missing = f"there is no trace '{shortened(name, _NAME)}' in {where}"
        raise WarehouseError(f"{missing}{_why(snapshot, name) or _listing(where)}")
    ids = found.get_column("trace_id").to_list()
    if len(ids) > 1 and ids[0] not in {name, _USUAL + name}:
        more = " and more" if len(ids) > _NAMED else ""
        named = ", ".join(shortened(each, _NAME) for each in ids[:_NAMED])
        raise WarehouseError(
            f"'{shortened(name, _NAME)}' begins the ids of several traces in {where}: "
            f"{named}{more}; write more of the one that you mean"
        )
    scores = snapshot.scores_of([found.item(0, "created_at").date()])
    query = statement("FROM $scores WHERE trace_id = ?", scores=scores)
    row = frame_of(snapshot.connection.sql(query, params=[ids[0]]))
    return row.cast({each: SCORES[each] for each in row.columns}).row(0, named=True)


def _beginning_with(snapshot: OpenSnapshot, name: str) -> pl.DataFrame:
    """Look on the days that the facts know, and on all others only where nothing is found."""
    set_variables(snapshot.connection, name=name)
    known = snapshot.scores_of(snapshot.ask(_KNOWN_DAYS).get_column("day"))
    found = snapshot.ask(statement(_MEANT, scores=known))
    if found.is_empty():
        return snapshot.ask(statement(_MEANT, scores=statement("published.scores")))
    return found


def _why(snapshot: OpenSnapshot, name: str) -> str:
    """Why a trace is not there; empty where that is not known."""
    names = pl.DataFrame({"trace_id": [name, _USUAL + name]})
    rejected = snapshot.connection.execute(
        "SELECT source_file, message FROM published.rejects WHERE trace_id IN (?, ?) "
        'ORDER BY source_file, "row" LIMIT 1',
        names.get_column("trace_id").to_list(),
    ).fetchall()
    for source_file, message in rejected:
        return f": it was rejected, in {source_file}: {message}"
    hashes = names.select(id_hash()).to_series().to_list()
    forgotten = "SELECT count(*) FROM published.forgotten WHERE id_hash IN (?, ?)"
    if snapshot.connection.execute(forgotten, hashes).fetchall() != [(0,)]:
        return ": it was forgotten"
    return ""


def _listing(where: str) -> str:
    return f'; list ids: kp-batch sql "SELECT trace_id FROM scores" --warehouse {quote(where)}'  # noqa: S608 (told, not asked)
