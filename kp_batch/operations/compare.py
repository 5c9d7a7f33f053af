"""Compare the scores of two runs: what differs, how the scores changed, and why."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import polars as pl

from kp_batch.columns import Rows, cells
from kp_batch.duck import SQL, Value, frame_of, set_variables, sql, statement
from kp_batch.errors import UNREAD, KpBatchError
from kp_batch.html import Displayed
from kp_batch.ingest.reread import TraceLocation, find_locations, reread
from kp_batch.rendering import Head, Part, Table, rest_in
from kp_batch.text import count_of, one_line, printable, shortened
from kp_batch.warehouse.author import signed
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.reasons import (
    OF_ENCODER,
    Reason,
    file_changes,
    join_reasons,
    setting_changes,
)
from kp_batch.warehouse.run_record import RunRecord, done_runs, incomparable
from kp_batch.warehouse.snapshot import (
    CANDIDATE,
    PublishedSnapshot,
    create_view,
    kept_candidate,
    published,
)
from kp_batch.warehouse.staging import Staging

_TABLES = ("scores", "profiles", "files")
_OBJECTIVE = 200  # characters
SHOWN_MOVERS = 10
# Ten files of shown movers have up to 2.5 GiB, half a minute of a disk or a network; those of the
# other 90, up to 1.4 GiB.
MAX_SHOWN_FILE_BYTES, MAX_OTHER_FILE_BYTES = 256 << 20, 16 << 20
_DOMAINS = 50  # shown
# Readers who compare samples ask whether a difference is chance.
_MOVED = "how the scores of the traces in both runs moved (each difference is exact):"
_LINE = 120  # characters

_MEANS = """
    SELECT
        (SELECT score_mean(score) FROM before.scores),
        (SELECT score_mean(score) FROM after.scores)
"""

Take = Callable[[pl.DataFrame], None]
_PARTS = ("from_facts", "from_novelty", "from_weights", "from_overrides")
# The columns of the tables for people.
_SCORES = (
    *("task_domain", "traces", "rose", "fell", "stayed"),
    *("mean_change", "mean_absolute_change", "stability_index", "rank_correlation"),
)
_CROSSED = ("task_domain", "now_reach", "no_longer_reach")
_MOVED_THRESHOLD = (
    *("task_domain", "now_reach", "now_reach_by_threshold"),
    *("no_longer_reach", "no_longer_reach_by_threshold"),
)
_TOP = ("trace_id", "task_domain", "before_score", "after_score", *_PARTS)


class DomainMoves(Rows):
    """How the scores of domains changed, over the traces that both runs scored."""

    __slots__ = ()
    names = (
        *("task_domain", "traces", "before_mean", "after_mean", "mean_absolute_change"),
        *("before_quantiles", "after_quantiles", "stability_index", "rank_correlation"),
        *("rose", "fell", "stayed", "now_reach", "now_reach_by_threshold"),
        *("no_longer_reach", "no_longer_reach_by_threshold", *_PARTS, "single_thoughts"),
    )


class TopChanges(Rows):
    """How the scores of some traces changed."""

    __slots__ = ()
    names = (
        *("trace_id", "task_domain", "before_score", "after_score", "change", "single_thought"),
        *(*_PARTS, "objective", "unread"),
    )


@dataclass(frozen=True)
class Comparison(Displayed):
    """How the scores changed from one run to another."""

    before: str  # run_id
    after: str  # run_id
    before_user: str  # who ran it
    after_user: str
    before_note: str | None  # given with the run
    after_note: str | None
    changes: tuple[Reason, ...]  # what differs between the two: `files_new` etc. is the archive
    before_threshold: float  # 0..1
    after_threshold: float
    in_both: int  # traces
    only_before: int
    only_after: int
    before_mean: float | None  # the mean score of all traces of the run; null: it has none
    after_mean: float | None
    domains: DomainMoves  # all domains first, then each; empty: no trace is in both
    movers: TopChanges  # the 100 traces that changed most, the most first; none that stayed

    def _parts(self) -> Iterator[Part]:
        return comparison_parts(self)


class Side(NamedTuple):
    """A run to compare, and the state in which it left the tables."""

    run: RunRecord
    tables: PublishedSnapshot


def compare(
    warehouse: Path,
    before: str,
    after: str,
    *,
    force: bool = False,
    take_crossed: Take | None = None,
) -> Comparison:
    """Compare the scores that two runs left, over the traces in both.

    The change of each trace has four parts, which sum to it: from its own facts, from its novelty,
    from the weights and from the overrides. They replace those of the first run in this order. If
    the trace is a single thought on either side, whose score is 0.1, the whole change is from the
    overrides, and `single_thought` says which side.

    Args:
        warehouse: the folder of the tables.
        before: the earlier run, by a name for `find_runs`, or `candidate`.
        after: the later run; see `before`.
        force: compare even if encoders or formulas differ.
        take_crossed: takes the traces that crossed the threshold: rows of `crossed` in compare.sql.

    Raises:
        KpBatchError: there is no such run, its tables were removed, or the two are not comparable.
    """
    now = published(warehouse)
    old, new = (_side(now, name) for name in (before, after))
    if not force and (differing := incomparable(old.run, new.run)):
        reasons = join_reasons(differing)
        raise KpBatchError(
            f"runs {old.run.run_id} and {new.run.run_id} are not comparable: their formulas or "
            f"encoders differ ({reasons}); --force compares them anyway"
        )
    # The facts of the candidate include the published ones.
    candidate = next((x.tables for x in (old, new) if x.tables.is_candidate), now)
    return compare_tables(old, new, candidate, take_crossed)


def _side(now: PublishedSnapshot, name: str) -> Side:
    if name == CANDIDATE:
        candidate = kept_candidate(now.warehouse)
        return Side(done_runs(candidate.runs())[-1], candidate)
    [run] = now.find_runs(name)
    return Side(run, now.as_of(run))


def compare_tables(
    before: Side, after: Side, now: PublishedSnapshot, take_crossed: Take | None = None
) -> Comparison:
    """Compare two states of the tables; see `compare`.

    Args:
        before: the earlier state.
        after: the later state.
        now: the state with the facts, which depend only on a file's content, and are removed
            earlier than scores.
        take_crossed: see `compare`.
    """
    sides = {"before": before.tables, "after": after.tables}
    rollbacks = [*_rollbacks(before.run, after.run, now.runs())]
    goes_back = bool(rollbacks) or after.run.number < before.run.number
    with Staging.temporary() as staging, staging.connect() as connection:
        create_macros(connection)
        for schema, snapshot in sides.items():
            snapshot.attach(connection, schema, _TABLES)
            set_variables(connection, **{f"{schema}_threshold": snapshot.manifest.threshold})
        set_variables(connection, goes_back=goes_back)
        create_view(connection, "main", "facts", now.relation("facts"))
        changes = score_changes("before.scores", "before.profiles", "after.scores")
        connection.execute(statement("CREATE TEMP TABLE score_changes AS $rows", rows=changes))
        connection.execute(sql(__name__, "compare.sql"))
        if take_crossed:
            take_crossed(frame_of(connection.sql("FROM crossed")))
        [means] = connection.execute(_MEANS).fetchall()
        changes = tuple(_changes(before.run, after.run, connection))
        [(in_both,)] = connection.execute("SELECT count(*) FROM score_changes").fetchall()
        return Comparison(
            before=before.run.run_id,
            after=after.run.run_id,
            before_user=before.run.user,
            after_user=after.run.user,
            before_note=before.run.note,
            after_note=after.run.note,
            changes=(*rollbacks, *changes) if changes else (),
            before_threshold=before.tables.manifest.threshold,
            after_threshold=after.tables.manifest.threshold,
            in_both=in_both,
            only_before=before.tables.scored - in_both,
            only_after=after.tables.scored - in_both,
            before_mean=means[0],
            after_mean=means[1],
            domains=DomainMoves.of(_rows(connection, "domains")),
            movers=TopChanges.of(_movers(connection)),
        )


def score_changes(before_scores: Value, before_profiles: Value, after_scores: Value) -> SQL:
    """Return SQL for the change of each score, and its parts; see score_changes.sql."""
    return sql(
        __name__,
        "score_changes.sql",
        before_scores=before_scores,
        before_profiles=before_profiles,
        after_scores=after_scores,
    )


def _rollbacks(old: RunRecord, new: RunRecord, runs: Iterable[RunRecord]) -> Iterator[Reason]:
    """Yield the rollbacks after a run, up to a later one and including it, the oldest first."""
    for run in done_runs(runs):
        if old.number < run.number <= new.number:
            yield from (Reason(**change) for change in run.changes if change["code"] == "rollback")


def _changes(
    old: RunRecord, new: RunRecord, connection: duckdb.DuckDBPyConnection
) -> Iterator[Reason]:
    """Yield what differs: settings, formulas, encoders, then the archive's files."""
    settings = [*setting_changes(old.settings, new.settings)]
    yield from settings
    known = {"encoder"} if OF_ENCODER & {change.code for change in settings} else set[str]()
    yield from (change for change in incomparable(old, new) if change.code not in known)
    [files] = _rows(connection, "file_changes")
    yield from file_changes(files)


def _movers(connection: duckdb.DuckDBPyConnection) -> Iterator[dict[str, Any]]:
    """Yield the traces that changed most, with the start of their objectives."""
    rows = _rows(connection, "movers")
    locations = find_locations(connection, "moved", "after.files", "facts")
    shown = {row["trace_id"] for row in rows[:SHOWN_MOVERS]}
    opened = {location.source_file for location in locations if location.trace_id in shown}
    first = [location for location in locations if location.source_file in opened]
    others = [location for location in locations if location.source_file not in opened]
    objectives = {
        **_objectives(first, MAX_SHOWN_FILE_BYTES),
        **_objectives(others, MAX_OTHER_FILE_BYTES),
    }
    for row in rows:
        yield {**row, **objectives[row["trace_id"]]}


def _objectives(
    locations: Iterable[TraceLocation], most_bytes: int
) -> Mapping[str, Mapping[str, str | None]]:
    """Return the columns `objective` and `unread` of `TopChanges`, by trace_id.

    There should be few locations: this reads every file that is not larger than `most_bytes`.
    """
    return {
        location.trace_id: {"objective": None, "unread": trace}
        if isinstance(trace, str)
        else {"objective": str(trace["task"]["objective"])[:_OBJECTIVE], "unread": None}
        for location, trace in reread(locations, most_bytes=most_bytes)
    }


def _rows(connection: duckdb.DuckDBPyConnection, name: str) -> list[dict[str, Any]]:
    """Return the rows of a small table, in its order."""
    rows = connection.table(name)
    return [dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()]


def comparison_parts(
    result: Comparison, *, within: str = "", shows_text: bool = True
) -> Iterator[Part]:
    """Return the text of a comparison: what differs, how the scores changed, and the threshold.

    Args:
        result: the comparison.
        within: the attribute of a user's result that has the comparison, with a dot.
        shows_text: whether to show the objectives of the traces that changed most.
    """
    yield Head(f"from {result.before} {signed(result.before_user, result.before_note)}")
    yield Head(f"to   {result.after} {signed(result.after_user, result.after_note)}")
    yield (
        f"  {count_of(result.in_both, 'trace')} in both, {result.only_before:,} only in the "
        f"first, {result.only_after:,} only in the second"
    )
    yield from _means(result)
    yield from ("", *_differing(result.changes))
    if result.domains:
        shown = _largest(result.domains)
        yield from ("", Head(_MOVED), Table(cells(shown, *_SCORES), marked=[0]))
        yield from _unknown(shown)
        if more := len(result.domains) - len(shown):
            rest = rest_in(f"{within}domains")
            yield f"  {count_of(more, 'more domain')}, with fewer traces: {rest}"
        yield from ("", *_crossings(result, shown))
        yield from ("", *_movements(result, shown, within, shows_text=shows_text))


def _means(result: Comparison) -> Iterator[str]:
    """Yield the mean score of all traces of each run, if traces entered or exited."""
    if result.only_before or result.only_after:
        means = (result.before_mean, result.after_mean)
        first, second = ("none" if mean is None else f"{mean:.4f}" for mean in means)
        yield f"  mean score of all traces: {first} \N{RIGHTWARDS ARROW} {second}"


def _differing(changes: Sequence[Reason]) -> Iterator[Part]:
    is_of_files = [change.code.startswith("files_") for change in changes]
    if not is_of_files:
        yield Head("nothing differs between the runs")
    elif all(is_of_files):
        yield Head("only the archive differs:")
    elif any(is_of_files):
        yield Head("what differs:")
    else:
        yield Head("what differs, over the same archive:")
    yield from (f"  {printable(change.words)}" for change in changes)


def _largest(domains: DomainMoves) -> list[dict[str, Any]]:
    """Return the row of all domains, and those with the most traces, in their order."""
    most = nlargest(_DOMAINS, range(1, len(domains)), key=lambda index: domains[index]["traces"])
    rows = (domains[index] for index in sorted([0, *most]))
    return [{**row, "mean_change": row["after_mean"] - row["before_mean"]} for row in rows]


def _unknown(shown: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield why numbers are missing, if any are."""
    if any(row["stability_index"] is None for row in shown):
        yield "  no stability index: below 200 traces it is mostly chance"
    if any(row["rank_correlation"] is None for row in shown):
        yield "  no rank corr: all scores of a run are equal, and have no order"


def _crossings(result: Comparison, shown: Iterable[Mapping[str, Any]]) -> Iterator[Part]:
    """Yield how many traces now reach the threshold, and how many no longer do."""
    old, new = result.before_threshold, result.after_threshold
    threshold = f"{old}" if old == new else f"{old} \N{RIGHTWARDS ARROW} {new}"
    crossed = [row for row in shown if row["now_reach"] or row["no_longer_reach"]]
    if crossed:
        yield Head(f"which traces crossed the threshold {threshold}:")
        yield Table(cells(crossed, *(_MOVED_THRESHOLD if old != new else _CROSSED)), marked=[0])
    else:
        yield Head(f"no trace crossed the threshold {threshold}")


def _movements(
    result: Comparison, shown: Iterable[Mapping[str, Any]], within: str, *, shows_text: bool
) -> Iterator[Part]:
    """Yield what changed the scores, and the traces that changed most."""
    if not result.movers:
        yield Head("no score moved")
        return
    yield Head("what moved them, on average:")
    yield Table(cells(shown, "task_domain", *_PARTS), marked=[0])
    movers = result.movers[:SHOWN_MOVERS]
    notes = [shortened(_objective(change), _LINE - 4) for change in movers if shows_text]
    yield from ("", Head("which moved most:"))
    yield Table(cells(movers, *_TOP), notes=notes)
    if more := len(result.movers) - len(movers):
        yield f"  {more:,} more: {rest_in(f'{within}movers')}"


def _objective(row: Mapping[str, Any]) -> str:
    thought = row["single_thought"]
    single = f"(a single thought {thought}) " if thought else ""
    if row["objective"] is None:
        return f"{single}({UNREAD[row['unread'] or 'unreadable']})"
    return single + one_line(row["objective"])
