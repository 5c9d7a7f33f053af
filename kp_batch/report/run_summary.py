"""Summarise a finished run: as data, for a terminal, and as a table in Prefect."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING

from kp_batch.columns import Rows, cells
from kp_batch.rendering import Facts, Head, Part, Row, Table
from kp_batch.steps.step import PREFECT, START, Clock, step_seconds
from kp_batch.text import be, count_of, printable
from kp_batch.warehouse.audits import AuditResult, audits_text
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.last_run import current_attempt
from kp_batch.warehouse.run_record import RunCounts
from kp_batch.warehouse.run_result import RunResult, now
from kp_batch.warehouse.vacuum_result import VacuumResult

if TYPE_CHECKING:  # printing a summary does not need these
    from kp_batch.planning.plan import Plan
    from kp_batch.runs.run import Run

_QUANTILES = ("p5", "p25", "p50", "p75", "p95")
SHOWN_DOMAINS = 50
_OVERHEAD = {PREFECT: "Prefect", START: "start"}


class DomainScores(Rows):
    """The distribution of the scores of domains, as in the table `distributions`."""

    __slots__ = ()
    names = ("task_domain", "traces", "at_threshold", "mean", *_QUANTILES, "bins")


_NO_SCORES = DomainScores()


@dataclass(frozen=True, kw_only=True)
class Summary(RunResult):
    """How a run went, and the distribution of the scores after it."""

    domains: int = 0
    scores: DomainScores = _NO_SCORES  # sorted by domain
    removed: VacuumResult | None = None  # null: the run has no `keep`, or this failed

    def _parts_of_work(self) -> Iterator[Part]:
        """Yield a summary for people: one line if there was nothing to do."""
        counts = self.counts
        if counts is None:
            return
        if self.run_id is None:
            audited = f"; audits: {audits_text(self.audits)}" if self.audits else ""
            words = _removed_words(self)
            removed = f"; removed: {words}" if words else ""
            yield Head(nothing_text(counts) + audited + removed)
            return
        rescored = f"{counts.rescored:,} of {count_of(counts.accepted, 'trace')} rescored"
        yield Head(f"run {self.run_id}: {rescored} in {_duration(self)}")
        yield Facts([*_facts(self, counts)])
        yield ""
        largest = _largest(self.scores)
        yield Table(as_table(largest))
        more = self.domains - len(largest)
        if more:
            yield f"  {more:,} more, with fewer traces: see the view distributions"


def summarise(
    run: "Run", plan: "Plan", clock: Clock, audits: Sequence[AuditResult] = ()
) -> Summary:
    """Summarise the run, with the scores of the domains with the most traces.

    The scores are read from the published tables.
    """
    from kp_batch.warehouse.snapshot import newest_trace

    warehouse, run_id = run.config.warehouse.absolute(), run.run_id if plan.pending else None
    domains, scores = _distributions(warehouse, run_id, SHOWN_DOMAINS)
    this = current_attempt()
    return Summary.here(
        "done" if run_id else "nothing_to_do",
        warehouse=shown(warehouse),
        started_at=this.result.started_at if this else run.started_at.isoformat(),
        finished_at=now(),
        run_id=run_id,
        counts=plan.counts,
        seconds=clock.rounded,
        audits=audits,
        newest_trace=newest_trace(warehouse),
        domains=domains,
        scores=scores,
    )


def with_all_domains(warehouse: Path, summary: Summary) -> Summary:
    """Return the summary with the scores of every domain: there may be millions."""
    domains, scores = _distributions(warehouse, summary.run_id, summary.domains)
    return replace(summary, domains=domains, scores=scores)


def _largest(scores: DomainScores) -> DomainScores:
    """Return the domains with the most traces, in their order."""
    most = nlargest(SHOWN_DOMAINS, range(len(scores)), key=lambda place: scores[place]["traces"])
    return DomainScores(scores[place] for place in sorted(most))


def _facts(summary: Summary, counts: RunCounts) -> Iterator[tuple[str, str]]:
    steps = step_seconds(summary.seconds or {})
    codes = ", ".join(f"{code} {count:,}" for code, count in counts.rejected_by_code.items())
    of_files = "from files that are gone, unreadable or excluded"
    kept = f" ({counts.rows_kept:,} kept {of_files})" if counts.rows_kept else ""
    windows = "" if counts.windows is None else f" ({count_of(counts.windows, 'window')})"
    archive = (
        f"{count_of(counts.files, 'file')}, {count_of(counts.rows, 'row')}{kept}: "
        f"{counts.accepted:,} accepted, {count_of(counts.duplicates, 'duplicate')}, "
        f"{counts.superseded:,} superseded, {counts.rejected:,} rejected"
    )
    yield "archive", archive
    if codes:
        yield "rejects", codes
    for path in counts.unreadable_files:
        yield "unreadable", printable(path)
    yield "texts", f"{counts.embedded:,} embedded{windows}, {counts.reused:,} reused"
    traces = (
        f"{counts.rescored:,} rescored ({counts.replayed:,} replayed, "
        f"{counts.reweighted:,} reweighted), {counts.removed:,} removed; "
        f"{count_of(counts.partitions, 'partition')} written"
    )
    yield "traces", traces
    if summary.audits:
        yield "audits", audits_text(summary.audits)
    if words := _removed_words(summary):
        yield "removed", words
    yield "seconds", ", ".join(f"{step} {spent:.2f}" for step, spent in steps.items())


def _removed_words(summary: Summary) -> str:
    return summary.removed.words if summary.removed else ""


def nothing_text(counts: RunCounts) -> str:
    """Return the line of a run with nothing to do, with the remaining problems."""
    problems = (
        (counts.rejected, "row", "rejected"),
        (counts.unreadable, "file", "unreadable"),
        (counts.gone, "file", "gone"),
        (counts.excluded, "file", "excluded with traces that stay"),
    )
    listed = ", ".join(
        f"{count_of(count, unit)} {state}" for count, unit, state in problems if count
    )
    are = be(counts.accepted)
    done = f"nothing to do: {count_of(counts.accepted, 'score')} {are} up to date"
    return f"{done}; {listed}" if listed else done


def _duration(summary: Summary) -> str:
    seconds = summary.seconds or {}
    shares = {"work": sum(step_seconds(seconds).values())}
    shares |= {name: seconds[key] for key, name in _OVERHEAD.items() if key in seconds}
    listed = ", ".join(f"{name} {spent:.1f} s" for name, spent in shares.items())
    return f"{sum(seconds.values()):.1f} s ({listed})"


def as_table(scores: DomainScores) -> list[Row]:
    """Format the distribution of the scores, a row for each domain."""
    rows = ({**row, "share": row["at_threshold"] / row["traces"]} for row in scores)
    return cells(rows, "task_domain", "bins", "traces", "share", "mean", *_QUANTILES)


def _distributions(warehouse: Path, run_id: str | None, most: int) -> tuple[int, DomainScores]:
    """Read the number of domains of a run, or of the last done one, and the largest of them."""
    import polars as pl

    from kp_batch.warehouse.run_record import last_done
    from kp_batch.warehouse.snapshot import published

    snapshot = published(warehouse)
    last = None if run_id else last_done(snapshot.runs())
    is_of_run = pl.col("run_id") == (run_id or (last and last.run_id))
    rows = snapshot.scan("distributions").filter(is_of_run & pl.col("task_domain").is_not_null())
    largest = rows.sort("traces", "task_domain", descending=[True, False]).head(most)
    number, frame = pl.collect_all([rows.select(pl.len()), largest.sort("task_domain")])
    return number.item(), DomainScores.of(frame.iter_rows(named=True))
