"""Describes a plan as data."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kp_batch.archive.file_changes import FileChanges
from kp_batch.reasons import Reason

if TYPE_CHECKING:  # who only prints a plan does not wait for these
    import polars as pl

    from kp_batch.planning.plan import Plan
    from kp_batch.run import Run

Pending = Literal["settings", "files", "scores", "profiles", "rejects", "forgotten"]

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

    reasons: list[Reason]  # why there is anything to do
    files: FileChanges
    rows_rejected: int  # as the archive stands now
    rejected_by_code: dict[str, int]  # rows and files
    excess: str | None  # why the run would fail and publish no scores
    unused_profiles: dict[str, str | None]  # see `Plan.unused_profiles`
    texts_to_embed: int
    traces_to_replay: int
    traces_to_restate: int
    traces_to_reweight: int
    traces_to_remove: int
    domains: int  # that have any to restate
    largest_domains: dict[str, int]  # by the traces to restate: those of them that have the most
    by_domain_and_day: list[DomainDay] | None  # None: not asked for, there may be millions
    partitions: list[str]  # the days to be rewritten
    future_partitions: list[str]  # those of them that are after the day of the run
    pending: list[Pending]  # see `Plan.pending`
    estimated_seconds: float | None  # None where no rates are known for it


def describe(run: "Run", plan: "Plan", *, by_domain_and_day: bool = False) -> PlanDescription:
    """Describe a plan whose staging is there, with or without its list by domain and day."""
    import polars as pl

    from kp_batch.planning.limits import excess

    counts = plan.counts
    workload = pl.scan_parquet(run.staging.workload, glob=False)
    by_domain = workload.group_by("task_domain").agg(pl.col("restate").sum())
    restated = by_domain.collect(engine="streaming")
    largest = restated.sort("restate", "task_domain", descending=[True, False]).head(_SHOWN)
    return PlanDescription(
        reasons=list(plan.reasons) if plan.pending else [],
        files=plan.observed.files,
        rows_rejected=counts.rejected,
        rejected_by_code=counts.rejected_by_code,
        excess=excess(run, counts, plan.limited),
        unused_profiles=dict(plan.unused_profiles),
        texts_to_embed=counts.embedded,
        traces_to_replay=counts.replayed,
        traces_to_restate=counts.restated,
        traces_to_reweight=counts.reweighted,
        traces_to_remove=counts.removed,
        domains=len(restated),
        largest_domains=dict(largest.iter_rows()),
        by_domain_and_day=_rows(workload.collect()) if by_domain_and_day else None,
        partitions=[str(day) for day in plan.days],
        future_partitions=[str(day) for day in plan.days if day > run.started_at.date()],
        pending=list(plan.pending),
        estimated_seconds=plan.estimated_seconds,
    )


def _rows(workload: "pl.DataFrame") -> list[DomainDay]:
    return [
        DomainDay(domain, str(day), replay, restate, reweight)
        for domain, day, replay, restate, reweight in workload.iter_rows()
    ]
