"""Explain the score of one published trace: its inputs, and its history."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from itertools import zip_longest
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import polars as pl

from kp_batch.dimensions import Counts
from kp_batch.duck import frame_of, read_parquet, set_variables, sql, statement
from kp_batch.embedding.minilm import MiniLM
from kp_batch.errors import EncoderError, WarehouseError
from kp_batch.operations.compare import score_changes
from kp_batch.operations.explanation import Explanation, ScoreChanges
from kp_batch.operations.neighbours import (
    Row,
    TraceContent,
    TracesMet,
    cache_hits,
    met_row,
    read_contents,
)
from kp_batch.schemas import SCORES
from kp_batch.scoring.composite import breakdowns, profiles_of, scores_by_profile
from kp_batch.scoring.facts import id_hash
from kp_batch.scoring.profiles import parse_profiles
from kp_batch.text import encodable, shortened
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.open_snapshot import OpenSnapshot, open_published
from kp_batch.warehouse.run_record import RunRecord, done_runs
from kp_batch.warehouse.snapshot import CANDIDATE

_NAMED = 3  # ids at most, where a beginning is not unique
_NAME = 80  # characters
_PREFIX = "kp:trace:"  # of most ids; optional in names
# The days of the traces that match a name, from the facts, which are few files.
_KNOWN_DAYS = """
    SELECT DISTINCT day_of(created_at) AS day
    FROM published.facts
    WHERE len(reasons) = 0
        AND (
            starts_with(trace_id, getvariable('name'))
            OR starts_with(trace_id, 'kp:trace:' || getvariable('name'))
        )
"""
# The traces that match a name: an id or its beginning; an exact match comes first.
_MATCHES = """
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
_PARTS = ("change", "from_facts", "from_novelty", "from_weights", "from_overrides")


def explain(warehouse: Path, name: str, *, candidate: bool = False) -> Explanation:
    """Explain why a published trace has its score.

    The row is the published one. The contents of the trace and its neighbours are read again from
    the archive; the neighbours are found again from stored vectors.

    Args:
        warehouse: the folder of the tables.
        name: the name of the trace; see `find_trace`.
        candidate: explain the score of the candidate.

    Raises:
        WarehouseError: there is no warehouse, no such trace, or no candidate.
    """
    with open_published(warehouse, CANDIDATE if candidate else None) as snapshot:
        create_macros(snapshot.connection, "composite")
        row = find_trace(snapshot, name)
        hits = cache_hits(snapshot, row)
        contents = read_contents(snapshot, row, (other for other, _ in hits.nearest))
        own = contents[row["trace_id"]]
        scored = pl.DataFrame([row])
        settings = parse_profiles(snapshot.manifest.settings["profiles"], "the warehouse")
        current = settings.versions_at(row["created_at"])
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
            same_objective=_same_objective(snapshot, row),
            steps=own.steps,
            is_cut=_is_cut(row["encoder_id"], own),
            counts=Counts.of(own.facts or row),
            breakdown=breakdowns(scored, profiles_of(snapshot.scan("profiles")))[0],
            threshold=snapshot.manifest.threshold,
            recorded_score=row["recorded_score"],
            weights_from=version.date if (version := current.get(row["profile"])) else None,
            by_profile=scores_by_profile(scored, settings.at(row["created_at"]))[0],
            encoder_id=row["encoder_id"],
            cache_id=row["cache_id"],
            cache_group=row["cache_group"],
            max_similarity=row["max_similarity"],
            cache=hits.contents,
            neighbours=TracesMet(
                met_row(row, other, similarity, own, contents[other["trace_id"]])
                for other, similarity in hits.nearest
            ),
            neighbours_caveat=hits.caveat,
            history=score_history(snapshot, row),
            run_id=row["run_id"],
        )


def _same_objective(snapshot: OpenSnapshot, row: Row) -> int:
    """Count the other traces with the objective of a row of `scores`."""
    query = "SELECT count(*) - 1 FROM published.scores WHERE objective_hash = ?"
    [(others,)] = snapshot.connection.execute(query, [row["objective_hash"]]).fetchall()
    return int(others)


def _is_cut(encoder_id: str, own: TraceContent) -> bool | None:
    """Whether the encoder read only the beginning of the text; None if unknown."""
    if own.facts is None or not encoder_id.startswith("minilm-"):
        return None
    with suppress(EncoderError):  # its files are gone
        return MiniLM().cuts(own.facts["text"])
    return None


def find_trace(snapshot: OpenSnapshot, name: str) -> dict[str, Any]:
    """Find the trace that a name means, and return its row of `scores`.

    The name is an id or its unique beginning, with or without `kp:trace:`.

    Raises:
        WarehouseError: there is no such trace (it may be rejected or forgotten), or several.
    """
    name, where = encodable(name), shown(snapshot.warehouse)
    matches = _matches(snapshot, name) if name else pl.DataFrame()
    if matches.is_empty():
        missing = f"there is no trace '{shortened(name, _NAME)}' in {where}"
        raise WarehouseError(f"{missing}{_absence(snapshot, name) or _listing(where)}")
    ids = matches.get_column("trace_id").to_list()
    if len(ids) > 1 and ids[0] not in {name, _PREFIX + name}:
        more = " and more" if len(ids) > _NAMED else ""
        named = ", ".join(shortened(trace_id, _NAME) for trace_id in ids[:_NAMED])
        raise WarehouseError(
            f"'{shortened(name, _NAME)}' matches several traces in {where}: "
            f"{named}{more}; write more of the id"
        )
    scores = snapshot.scores_of([matches.item(0, "created_at").date()])
    query = statement("FROM $scores WHERE trace_id = ?", scores=scores)
    row = frame_of(snapshot.connection.sql(query, params=[ids[0]]))
    return row.cast({column: SCORES[column] for column in row.columns}).row(0, named=True)


def _matches(snapshot: OpenSnapshot, name: str) -> pl.DataFrame:
    """Search the days that the facts name, and others only if these have no match."""
    set_variables(snapshot.connection, name=name)
    known = snapshot.scores_of(snapshot.ask(_KNOWN_DAYS).get_column("day"))
    matches = snapshot.ask(statement(_MATCHES, scores=known))
    if matches.is_empty():
        return snapshot.ask(statement(_MATCHES, scores=statement("published.scores")))
    return matches


def _absence(snapshot: OpenSnapshot, name: str) -> str:
    """Return why there is no such trace; empty if unknown."""
    names = pl.DataFrame({"trace_id": [name, _PREFIX + name]})
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
    return f'; list ids: kp-batch sql "SELECT trace_id FROM scores" --warehouse {quote(where)}'  # noqa: S608 (shown, not executed)


class _KeptRun(NamedTuple):
    """A run whose tables are kept, and the files of these that a trace's history needs."""

    run: RunRecord
    scores: Sequence[Path]  # of the day of the trace
    profiles: Sequence[Path]


def score_history(snapshot: OpenSnapshot, row: Row) -> ScoreChanges:
    """Return the runs that changed a score, the newest first, as long as their tables are kept.

    These include rollbacks that changed it. The history ends where the time of the trace changed.
    """
    done = done_runs(snapshot.runs())
    kept = [*_kept_runs(snapshot, row["created_at"].date(), done)]
    states = [*_states(snapshot, row, kept).iter_rows(named=True)]
    runs, by_id = {run.number: run for run in done}, {run.run_id: run for run in done}
    if len(kept) < len(done):
        # The run that published the oldest score is unknown: take the one that computed it.
        oldest = kept[-1].run
        runs[oldest.number] = by_id.get(states[-1]["run_id"], oldest)
    pairs = zip_longest(states, states[1:])
    return ScoreChanges.of(_score_change(runs[new["number"]], new, old) for new, old in pairs)


def _kept_runs(snapshot: OpenSnapshot, day: date, done: Sequence[RunRecord]) -> Iterator[_KeptRun]:
    """Yield the successful runs, the newest first, as long as their tables are kept."""
    for run in reversed(done):
        try:
            tables = snapshot if run is done[-1] else snapshot.as_of(run)
            yield _KeptRun(run, tables.files_of_day(day), tables.files("profiles"))
        except WarehouseError:
            return


def _states(snapshot: OpenSnapshot, row: Row, kept: Sequence[_KeptRun]) -> pl.DataFrame:
    """See score_history.sql."""
    set_variables(snapshot.connection, trace_id=row["trace_id"])
    query = sql(
        __name__,
        "score_history.sql",
        rows=read_parquet(*{path for each in kept for path in each.scores}, named=True),
        changes=score_changes("before", "weights", "after"),
        profiles=read_parquet(*{path for each in kept for path in each.profiles}),
    )
    files = [(each.run.number, [*map(str, each.scores)]) for each in kept]
    return snapshot.ask(query, kept=pl.DataFrame(files, ["number", "files"], orient="row"))


def _score_change(run: RunRecord, new: Row, old: Row | None) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "finished_at": run.finished_at.isoformat(),
        **{name: new[name] for name in ("score", *_PARTS)},
        "reasons": [*_reasons(run, new, old)],
        "user": run.user,
        "note": run.note,
    }


def _reasons(run: RunRecord, new: Row, old: Row | None) -> Iterator[str]:
    """Yield why the run had work, as far as this trace may be concerned."""
    rows = [new, *([old] if old else [])]
    weighted_by = {row[name] for row in rows for name in ("task_domain", "profile")}
    for change in run.changes:
        if change["code"] != "weights" or change["of"] in weighted_by:
            yield change["words"]
