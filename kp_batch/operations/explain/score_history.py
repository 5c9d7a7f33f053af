"""How the score of one trace came to differ over the runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from kp_batch.duck import SQL, set_variables, statement
from kp_batch.errors import WarehouseError
from kp_batch.operations.compare import score_changes
from kp_batch.operations.explain.texts import Row
from kp_batch.planning.snapshot import OpenSnapshot
from kp_batch.runs.record import RunRecord, done_runs
from kp_batch.warehouse.snapshot import PublishedSnapshot

_MOST = 10  # runs that are told
_PARTS = ("change", "from_facts", "from_novelty", "from_weights", "from_overrides")


@dataclass(frozen=True)
class ScoreChange:
    """A score that a trace had, and what the run that gave it changed about it."""

    run_id: str
    finished_at: str  # ISO 8601, UTC
    score: float
    change: float | None  # since the score before; null: the first that is known
    from_facts: float | None  # the four sum to the change
    from_novelty: float | None
    from_weights: float | None
    from_overrides: float | None
    reasons: tuple[str, ...]  # why the run had anything to do; not the weights of other domains


class _Scored(NamedTuple):
    """A trace as a run scored it."""

    run: RunRecord
    row: Row
    scores: SQL  # this row
    profiles: SQL


def score_history(snapshot: OpenSnapshot, row: Row) -> tuple[ScoreChange, ...]:
    """Tell which runs changed a score, the last one first, as far back as their tables are kept.

    A row names the run that scored it last, so only the states before such runs are looked at. A
    trace whose time changed is not followed further back.

    Args:
        snapshot: what is published.
        row: the trace's, of `scores`.
    """
    scored = list(islice(_scored(snapshot, row), _MOST + 1))
    pairs = zip(scored, [*scored[1:], None], strict=True)
    return tuple(_change(snapshot, *pair) for pair in islice(pairs, _MOST))


def _scored(snapshot: OpenSnapshot, row: Row) -> Iterator[_Scored]:
    """The trace as it is, and as each run left it before one that scored it anew."""
    set_variables(snapshot.connection, trace_id=row["trace_id"])
    done = done_runs(snapshot.runs())
    places = {run.run_id: place for place, run in enumerate(done)}
    before: RunRecord | None = None
    while True:
        try:
            then: PublishedSnapshot = snapshot.as_of(before) if before else snapshot
            scores, profiles = _rows(then, row), then.relation("profiles")
        except WarehouseError:  # its tables were removed, or its row of runs is damaged
            return
        found = snapshot.ask(scores)
        place = None if found.is_empty() else places.get(found.item(0, "run_id"))
        if place is None:
            return
        yield _Scored(done[place], found.row(0, named=True), scores, profiles)
        if place == 0:
            return
        before = done[place - 1]


def _rows(snapshot: PublishedSnapshot, row: Row) -> SQL:
    """SQL for the trace's score, of the files of its day alone."""
    scores = snapshot.scores_of([row["created_at"].date()])
    return statement("(FROM $scores WHERE trace_id = getvariable('trace_id'))", scores=scores)


def _change(snapshot: OpenSnapshot, new: _Scored, old: _Scored | None) -> ScoreChange:
    parts: dict[str, float | None] = dict.fromkeys(_PARTS)
    if old:
        changes = score_changes(old.scores, old.profiles, new.scores)
        parts = snapshot.ask(changes).select(_PARTS).row(0, named=True)
    return ScoreChange(
        run_id=new.run.run_id,
        finished_at=new.run.finished_at.isoformat(),
        score=new.row["score"],
        **parts,
        reasons=tuple(_reasons(new, old)),
    )


def _reasons(new: _Scored, old: _Scored | None) -> Iterator[str]:
    """Why the run had anything to do, as far as it may concern this trace."""
    rows = [new.row, *([old.row] if old else [])]
    weighted_by = {row[name] for row in rows for name in ("task_domain", "profile")}
    for each in new.run.changes:
        if each["code"] != "weights" or each["of"] in weighted_by:
            yield each["words"]
