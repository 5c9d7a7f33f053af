"""Summarises a finished run: as data, for a terminal, and as a table in Prefect."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kp_batch.run_record import RunCounts
from kp_batch.text import aligned, bar_line, printable

if TYPE_CHECKING:  # who only prints a summary does not wait for these
    from kp_batch.planning.plan import Plan
    from kp_batch.run import Run

_QUANTILES = ("p5", "p25", "p50", "p75", "p95")


@dataclass(frozen=True)
class DomainScores:
    """How the scores of one domain are distributed."""

    task_domain: str
    traces: int
    share_over_threshold: float  # 0..1
    mean: float
    quantiles: list[float]  # see `_QUANTILES`
    bins: list[int]  # counts of ten bins of equal width


@dataclass(frozen=True)
class Summary:
    """A finished run in figures."""

    run_id: str | None  # None: there was nothing to do
    warehouse: str
    counts: RunCounts
    seconds: Mapping[str, float]  # of each step, by its name
    scores: list[DomainScores]


def summarise(run: "Run", plan: "Plan", seconds: Mapping[str, float]) -> Summary:
    """Summarise the run; its scores are read back from what is published."""
    return Summary(
        run_id=run.run_id if plan.pending else None,
        warehouse=str(run.config.warehouse.absolute()),
        counts=plan.counts,
        seconds={step: round(spent, 3) for step, spent in seconds.items()},
        scores=_distribution(run, plan),
    )


def as_text(summary: Summary) -> str:
    """Format a summary for a terminal."""
    counts, seconds = summary.counts, summary.seconds
    codes = ", ".join(f"{code} {count:,}" for code, count in counts.rejected_by_code.items())
    total = sum(seconds.values())
    done = f"run {summary.run_id}: {counts.accepted:,} traces scored in {total:.1f} s"
    nothing = f"nothing to do: all {counts.accepted:,} traces are scored as they have to be"
    lines = [
        done if summary.run_id else nothing,
        (
            f"  archive    {counts.files:,} files, {counts.rows:,} rows: "
            f"{counts.accepted:,} accepted, {counts.duplicates:,} duplicates, "
            f"{counts.superseded:,} superseded, {counts.rejected:,} rejected"
        ),
        *([f"  rejects    {codes}"] if codes else []),
        *(f"  unreadable {printable(path)}" for path in counts.unreadable_files),
        f"  texts      {counts.embedded:,} embedded, {counts.reused:,} reused",
        (
            f"  traces     {counts.restated:,} restated ({counts.replayed:,} replayed, "
            f"{counts.reweighted:,} reweighted), {counts.removed:,} removed; "
            f"{counts.partitions:,} partitions written"
        ),
        "  seconds    " + ", ".join(f"{step} {spent:.2f}" for step, spent in seconds.items()),
        "",
        *aligned(as_table(summary)),
    ]
    return "\n".join(lines)


def as_table(summary: Summary) -> list[dict[str, str]]:
    """Format the distribution of the scores, a row for each domain."""
    return [
        {
            "domain": printable(row.task_domain),
            "0 to 1": bar_line(row.bins),
            "traces": f"{row.traces:,}",
            "shared": f"{row.share_over_threshold:.1%}",
            "mean": f"{row.mean:.3f}",
            **{name: f"{value:.3f}" for name, value in zip(_QUANTILES, row.quantiles, strict=True)},
        }
        for row in summary.scores
    ]


def _distribution(run: "Run", plan: "Plan") -> list[DomainScores]:
    """Read the run's distributions; those of the last done run if there was nothing to do."""
    from kp_batch.warehouse.reader import connect

    with connect(run.config.warehouse) as connection:
        rows = connection.execute(
            "SELECT task_domain, traces, worth_sharing / traces, mean, [p5, p25, p50, p75, p95], "
            "bins FROM distributions WHERE task_domain IS NOT NULL AND run_id = coalesce(?, "
            "(SELECT max_by(run_id, started_at) FROM runs WHERE status = 'done')) "
            "ORDER BY task_domain",
            [run.run_id if plan.pending else None],
        ).fetchall()
    return [DomainScores(*row) for row in rows]
