"""Describe a plan and its reasons: as data for programs, and as text for terminals and logs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import polars as pl

from kp_batch.archive.ledger import FileChanges
from kp_batch.archive.validation import SUPERSEDED
from kp_batch.columns import Rows, cells
from kp_batch.html import Displayed
from kp_batch.novelty.cache_settings import format_cache_by
from kp_batch.planning.changes import Loss
from kp_batch.planning.excess import exceeded_limits
from kp_batch.planning.plan import Plan
from kp_batch.rendering import Facts, Head, Part, Table
from kp_batch.runs.run import Run
from kp_batch.settings import Settings
from kp_batch.text import DOMAIN, be, count_of, printable, shortened, some_of
from kp_batch.warehouse.reasons import Pending, Reason, for_mail

_DATED = "to list them once they are scored: kp-batch sql 'FROM scores WHERE created_at > now()'"
_SHOWN = 5  # domains, or days
_REASONS = 12
_ROWS = 20  # rows by domain and day that a notebook shows
# The codes of the reasons to score again.
_OF_SCORING = {*Settings.model_fields, "weights", "audit", "formula", "model_files"}


class DomainDays(Rows):
    """The traces of each domain and day that are replayed, rescored and reweighted."""

    __slots__ = ()
    names = ("task_domain", "day", "replay", "rescore", "reweight")


@dataclass(frozen=True)
class PlanDescription(Displayed):
    """A plan for people and programs."""

    reasons: list[Reason]  # why there is work to do
    files: FileChanges
    excluded_kept: int  # excluded files whose published traces stay
    rows_of_earlier: int  # read by an earlier kp_batch, in files that are not read now
    rows_rejected: int  # in the current archive
    rejected_by_code: dict[str, int]  # rows and files
    excess: str | None  # why the run would fail and publish no scores
    unused_profiles: dict[str, str | None]  # see `Plan.unused_profiles`
    cache_by: str  # whose traces share a cache
    caches: int | None  # their number; null: one, or there is nothing to do
    traces_without_value: int  # traces without a value for `cache_by`
    texts_to_embed: int
    traces_to_replay: int
    traces_to_rescore: int
    traces_to_reweight: int
    traces_to_remove: int
    loss: Loss | None  # removed traces that are neither pruned nor forgotten
    pruned: Loss | None  # traces that --prune removes with their files
    domains: int  # domains with traces to rescore
    largest_domains: dict[str, int]  # those with the most traces to rescore, and their number
    by_domain_and_day: DomainDays | None  # None: not asked for; there may be millions of rows
    partitions: list[str]  # the days to rewrite
    future_partitions: list[str]  # those after the day of the run
    pending: list[Pending]  # see `Plan.pending`
    estimated_seconds: float | None  # None: no rates are known yet

    def _parts(self) -> Iterator[Part]:
        if not self.pending:
            yield Head(f"nothing to do ({_files(self) or 'no file changed'})")
            return
        traces = count_of(self.traces_to_rescore, "trace")
        yield Head(f"plan: rescore {traces}{_by_domain(self)}")
        yield Facts([*_facts(self)])
        if self.by_domain_and_day:
            yield Head("by domain and day:")
            yield Table(cells(self.by_domain_and_day[:_ROWS], *DomainDays.names))
            more = len(self.by_domain_and_day) - _ROWS
            if more > 0:
                yield f"  {more:,} more: see by_domain_and_day"


def describe(run: Run, plan: Plan, *, by_domain_and_day: bool = False) -> PlanDescription:
    """Describe a plan whose staging still exists, with or without its list by domain and day."""
    counts = plan.counts
    excess = exceeded_limits(run, counts, plan.limit_inputs)
    workload = pl.scan_parquet(run.staging.workload, glob=False)
    by_domain = workload.group_by("task_domain").agg(pl.col("rescore").sum())
    rescored = by_domain.collect(engine="streaming")
    largest = rescored.sort("rescore", "task_domain", descending=[True, False]).head(_SHOWN)
    return PlanDescription(
        reasons=list(plan.reasons) if plan.pending else [],
        files=plan.scan.files,
        excluded_kept=counts.excluded,
        rows_of_earlier=counts.rows_of_earlier,
        rows_rejected=counts.rejected,
        rejected_by_code=counts.rejected_by_code,
        excess=str(excess) if excess else None,
        unused_profiles=dict(plan.unused_profiles),
        cache_by=format_cache_by(run.config.cache_by),
        caches=plan.cache_groups.groups if plan.cache_groups else None,
        traces_without_value=plan.cache_groups.without_value if plan.cache_groups else 0,
        texts_to_embed=counts.embedded,
        traces_to_replay=counts.replayed,
        traces_to_rescore=counts.rescored,
        traces_to_reweight=counts.reweighted,
        traces_to_remove=counts.removed,
        loss=loss if (loss := plan.limit_inputs.loss).traces else None,
        pruned=plan.pruned if plan.pruned.traces else None,
        domains=len(rescored),
        largest_domains=dict(largest.iter_rows()),
        by_domain_and_day=_domain_days(workload.collect()) if by_domain_and_day else None,
        partitions=[str(day) for day in plan.days],
        future_partitions=[str(day) for day in plan.days if day > run.started_at.date()],
        pending=list(plan.pending),
        estimated_seconds=plan.estimated_seconds,
    )


def _domain_days(workload: pl.DataFrame) -> DomainDays:
    days = workload.with_columns(pl.col("day").cast(pl.String))
    return DomainDays.of(days.iter_rows(named=True))


def _facts(plan: PlanDescription) -> Iterator[tuple[str, str]]:
    reweighted = f"{count_of(plan.traces_to_reweight, 'trace')}: only their weights differ"
    of_earlier = (
        f"{count_of(plan.rows_of_earlier, 'row')} that only an earlier kp_batch read: their files "
        "are gone, unreadable or excluded"
    )
    work = [
        ("caches", plan.caches, _caches(plan)),
        ("embed", plan.texts_to_embed, count_of(plan.texts_to_embed, "text")),
        ("replay", plan.traces_to_replay, count_of(plan.traces_to_replay, "trace")),
        ("reweight", plan.traces_to_reweight, reweighted),
        ("remove", plan.traces_to_remove, count_of(plan.traces_to_remove, "trace")),
        ("keep", plan.rows_of_earlier, of_earlier),
        ("reject", sum(plan.rejected_by_code.values()), _rejected(plan)),
    ]
    time = (
        "no estimate yet"
        if plan.estimated_seconds is None
        else f"about {plan.estimated_seconds:,.0f} s"
    )
    yield from (("" if place else "why", words) for place, words in enumerate(_why(plan)))
    yield from ((name, text) for name, count, text in work if count)
    yield "rewrite", _days(plan.partitions)
    yield "time", time


def changed_settings(plan: PlanDescription) -> list[str]:
    """Return the settings that change scores, on one line; empty if none changed."""
    reasons = [reason for reason in plan.reasons if reason.code in _OF_SCORING]
    return [f"settings changed: {for_mail('; '.join(_words(reasons)))}"] if reasons else []


def profile_warnings(plan: PlanDescription) -> list[str]:
    """Return a line for each new profile that weights no trace."""
    return [
        f"no trace has the domain {printable(name)}"
        + (
            f"; did you mean {printable(similar)}?"
            if similar
            else ", though a profile has this name; check its spelling"
        )
        for name, similar in plan.unused_profiles.items()
    ]


def future_warnings(plan: PlanDescription, then: str = f"; {_DATED}") -> list[str]:
    """Return a line about traces that are dated in the future, and what to do then."""
    days = plan.future_partitions
    return [f"traces are dated in the future: {_days(days)}{then}"] if days else []


def loss_warnings(plan: PlanDescription) -> list[str]:
    """Return a line for each cause of removed published traces, unless a limit reports them."""
    losses = (
        (plan.loss, ", because no file of the archive contains {} any more"),
        (plan.pruned, " because of --prune"),
    )
    return [
        f"{count_of(loss.traces, 'published trace')} {be(loss.traces)} removed"
        f"{cause.format('it' if loss.traces == 1 else 'them')} ({loss.example})"
        for loss, cause in losses
        if loss and not plan.excess
    ]


def warnings(plan: PlanDescription) -> list[str]:
    """Return all warnings about a described plan, one line each; the last one fails a run."""
    excess = [f"a run would fail: {printable(plan.excess)}"] if plan.excess else []
    others = [*profile_warnings(plan), *future_warnings(plan), *loss_warnings(plan)]
    return [*others, *excess]


def _why(plan: PlanDescription) -> list[str]:
    """Return a line for each reason; those about files share one."""
    files = _files(plan)
    others = [reason for reason in plan.reasons if not reason.code.startswith("files_")]
    return [*_words(others), *([files] if files else [])]


def _words(reasons: Sequence[Reason]) -> list[str]:
    """Return the words of the first reasons, and how many more there are."""
    more = [f"and {len(reasons) - _REASONS:,} more"] if len(reasons) > _REASONS else []
    return [*(printable(reason.words) for reason in reasons[:_REASONS]), *more]


def _files(plan: PlanDescription) -> str:
    counts = [f"{len(paths):,} {change}" for change, paths in asdict(plan.files).items() if paths]
    kept = [f"{plan.excluded_kept:,} of them with traces that stay"] if plan.excluded_kept else []
    return f"files: {', '.join((*counts, *kept))}" if counts else ""


def _rejected(plan: PlanDescription) -> str:
    """Return the counts of rejected rows and files, and of superseded rows."""
    codes = {code: count for code, count in plan.rejected_by_code.items() if code != SUPERSEDED}
    code_counts = ", ".join(f"{code} {count:,}" for code, count in codes.items())
    superseded = plan.rejected_by_code.get(SUPERSEDED, 0)
    parts = [
        *([count_of(plan.rows_rejected, "row")] if plan.rows_rejected else []),
        *([count_of(len(plan.files.unreadable), "file")] if plan.files.unreadable else []),
        *([f"{count_of(superseded, 'row')} superseded"] if superseded else []),
    ]
    return ", ".join(parts) + (f" ({code_counts})" if code_counts else "")


def _caches(plan: PlanDescription) -> str:
    lacking = plan.traces_without_value
    without = f"; {count_of(lacking, 'trace')} without a value" if lacking else ""
    return f"{plan.caches:,}, by {plan.cache_by}{without}" if plan.caches else ""


def _by_domain(plan: PlanDescription) -> str:
    named = [f"{shortened(name, DOMAIN)} {count:,}" for name, count in plan.largest_domains.items()]
    return f" ({some_of(named, plan.domains)})" if named else ""


def _days(days: list[str]) -> str:
    if not days:
        return "no partition"
    if len(days) <= _SHOWN:
        return f"{count_of(len(days), 'partition')}: {', '.join(days)}"
    return f"{count_of(len(days), 'partition')} from {days[0]} to {days[-1]}"
