"""Describes a plan, for people and programs, with a time estimated from the last runs' rates."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from kp_batch.archive.file_changes import FileChanges
from kp_batch.run_record import RunCounts, done_runs
from kp_batch.text import printable

if TYPE_CHECKING:  # who only prints a plan does not wait for these
    import polars as pl

    from kp_batch.planning.plan import Plan
    from kp_batch.run import Run

Pending = Literal["archive", "scores", "profiles", "rejects", "threshold", "forgotten"]

# By the name of each step, the count that its time grows with.
_RATED: Mapping[str, Callable[[RunCounts], int]] = {
    "embed": lambda counts: counts.embedded,
    "replay": lambda counts: counts.replayed,
    "write": lambda counts: counts.partitions,
}
_PENDING: Mapping[Pending, str] = {
    "archive": "the archive",
    "scores": "the scores",
    "profiles": "the profiles",
    "rejects": "the rejects",
    "threshold": "the threshold",
    "forgotten": "what is forgotten",
}
_RUNS_RATED = 5
_SHOWN = 5


@dataclass(frozen=True)
class DomainDay:
    """How many traces of one domain and day are to be replayed, restated and reweighted."""

    task_domain: str
    day: str  # as 2026-01-31
    replay: int
    restate: int
    reweight: int


@dataclass(frozen=True)
class PlanDescription:
    """A plan, as people and programs read it."""

    files: FileChanges
    texts_to_embed: int
    traces_to_replay: int
    traces_to_restate: int
    traces_to_reweight: int
    traces_to_remove: int
    domains: int  # that have any to restate
    largest_domains: dict[str, int]  # by the traces to restate: those of them that have the most
    by_domain_and_day: list[DomainDay] | None  # None: not asked for, there may be millions
    partitions: list[str]  # the days to be rewritten
    pending: list[Pending]  # see `Plan.pending`
    seconds: float | None  # an estimate; None where no rates are known for it


def describe(run: "Run", plan: "Plan", *, by_domain_and_day: bool = False) -> PlanDescription:
    """Describe a plan whose staging is there, with or without its list by domain and day."""
    import polars as pl

    counts = plan.counts
    workload = pl.scan_parquet(run.staging.workload, glob=False)
    by_domain = workload.group_by("task_domain").agg(pl.col("restate").sum())
    restated = by_domain.collect(engine="streaming")
    largest = restated.sort("restate", "task_domain", descending=[True, False]).head(_SHOWN)
    return PlanDescription(
        files=plan.observed.files,
        texts_to_embed=counts.embedded,
        traces_to_replay=counts.replayed,
        traces_to_restate=counts.restated,
        traces_to_reweight=counts.reweighted,
        traces_to_remove=counts.removed,
        domains=len(restated),
        largest_domains=dict(largest.iter_rows()),
        by_domain_and_day=_rows(workload.collect()) if by_domain_and_day else None,
        partitions=[str(day) for day in plan.days],
        pending=list(plan.pending),
        seconds=_seconds(run, counts),
    )


def _rows(workload: "pl.DataFrame") -> list[DomainDay]:
    return [
        DomainDay(domain, str(day), replay, restate, reweight)
        for domain, day, replay, restate, reweight in workload.iter_rows()
    ]


def as_text(plan: PlanDescription) -> str:
    """Format a described plan for a terminal."""
    changed = asdict(plan.files).items()
    files = [f"{len(paths):,} {how}" for how, paths in changed if paths]
    if not plan.pending:
        return f"nothing to do ({', '.join(files) or 'no file changed'})"
    removed, seconds = plan.traces_to_remove, plan.seconds
    lines = [
        f"plan: {', '.join(_PENDING[what] for what in plan.pending)} will change",
        f"  files      {', '.join(files) or 'none changed'}",
        f"  embed      {plan.texts_to_embed:,} texts",
        f"  replay     {plan.traces_to_replay:,} traces",
        f"  restate    {plan.traces_to_restate:,} traces{_by_domain(plan)}",
        f"  reweight   {plan.traces_to_reweight:,} of them: their weights alone differ",
        *([f"  remove     {removed:,} traces"] if removed else []),
        f"  rewrite    {_days(plan.partitions)}",
        f"  time       {'no rates yet' if seconds is None else f'about {seconds:,.0f} s'}",
    ]
    return "\n".join(lines)


def _by_domain(plan: PlanDescription) -> str:
    named = [f"{printable(name)} {count:,}" for name, count in plan.largest_domains.items()]
    more = [f"{plan.domains - len(named):,} more"] if plan.domains > len(named) else []
    return f" ({', '.join(named + more)})" if named else ""


def _days(days: list[str]) -> str:
    if not days:
        return "no partition"
    if len(days) <= _SHOWN:
        return f"{len(days)} partitions: {', '.join(days)}"
    return f"{len(days):,} partitions from {days[0]} to {days[-1]}"


def _seconds(run: "Run", counts: RunCounts) -> float | None:
    """Estimate the time of the steps to come, from the rates of the last runs."""
    from kp_batch.warehouse.relations import run_records

    records = run_records(run.config.warehouse, run.published.tables.get("runs"))
    last = done_runs(records)[-_RUNS_RATED:]
    rated = [record for record in last if record.embedder == run.config.embedder]
    if not last:
        return None
    estimate = 0.0
    for step, units in _RATED.items():
        to_do = units(counts)
        done = [(units(each.counts), each.seconds.get(step, 0.0)) for each in rated if each.counts]
        known = sum(number for number, _ in done)
        if to_do and not known:
            return None
        spent = sum(seconds for number, seconds in done if number)
        estimate += spent / known * to_do if known else 0.0
    return estimate
