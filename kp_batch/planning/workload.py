"""Counts the traces that a run restates, by domain and day."""

from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches

import polars as pl

from kp_batch.planning.scorer import Scorer
from kp_batch.planning.timeline import Timeline
from kp_batch.runs.run import Run
from kp_batch.scoring.profiles import load_profiles

_COUNTS = ("replay", "restate", "reweight")
_WORKLOAD = pl.Schema(
    {"task_domain": pl.String, "day": pl.Date, **dict.fromkeys(_COUNTS, pl.Int64)}
)
_TRACES = (
    *("day", "created_at", "task_domain", "cache_id", "profile_id"),
    *("facts_changed", "replay", "traces"),
)
_DOMAINS = 10_000  # of the most traces, with which names are compared
_ASKED = 5  # profiles that are compared with them, which takes a fifth of a second each


@dataclass(frozen=True)
class Workload:
    """How many traces a run scores anew; by domain and day they are in `staging.workload`."""

    replay: int
    restate: int  # for any reason
    reweight: int  # of these: their weights alone differ
    days: frozenset[date]  # on which any is restated


def traces_after(run: Run, fingerprints: pl.DataFrame, timeline: Timeline) -> pl.LazyFrame:
    """All traces that will have a score after the run.

    Args:
        run: the run.
        fingerprints: what computed the published scores, see `State.fingerprints`.
        timeline: the traces around what changed.

    Returns:
        Those of the timeline one by one, and the others by day, domain and what computed them, with
        the columns of `_TRACES`; `traces`: how many.
    """
    elsewhere = fingerprints.lazy().filter(~pl.col("day").is_in(list(timeline.days)))
    as_published = elsewhere.with_columns(
        facts_changed=pl.lit(value=False), replay=pl.lit(value=False)
    )
    on_timeline = pl.scan_parquet(run.staging.timeline, glob=False).with_columns(
        day=pl.col("created_at").dt.date(), traces=pl.lit(1, pl.Int64)
    )
    return pl.concat([on_timeline.select(_TRACES), as_published.select(_TRACES)])


def stage_workload(run: Run, traces: pl.LazyFrame, scorer: Scorer) -> Workload:
    """Count the traces to replay, restate and reweight: writes `staging.workload`.

    Args:
        run: the run.
        traces: see `traces_after`.
        scorer: what the run scores with.
    """
    recached = scorer.cache_is_stale().fill_null(value=False)
    rescored = pl.col("replay") | pl.col("facts_changed") | recached
    stale = (pl.col("profile_id") != scorer.profile_id()).fill_null(value=False)
    marked = traces.select(
        *("task_domain", "day", "traces", "replay"),
        reweight=stale & ~rescored,
        restate=stale | rescored,
    )
    totals = [
        (pl.col(what).cast(pl.Int64) * pl.col("traces")).sum().alias(what) for what in _COUNTS
    ]
    by_domain = marked.filter("restate").group_by("task_domain", "day").agg(totals)
    rows = by_domain.sort("day", "task_domain").collect(engine="streaming")
    rows.write_parquet(run.staging.workload)
    sums = (int(rows.get_column(what).sum()) for what in _COUNTS)
    return Workload(*sums, days=frozenset(rows.get_column("day").unique()))


def stage_no_workload(run: Run) -> None:
    """Write `staging.workload` of a run that restates no trace."""
    _WORKLOAD.to_frame().write_parquet(run.staging.workload)


def unused_profiles(run: Run, traces: pl.LazyFrame) -> dict[str, str | None]:
    """The profiles that the run gives the warehouse and no trace is weighted by.

    Args:
        run: the run.
        traces: see `traces_after`.

    Returns:
        Their names, but for the built-in ones; the first ones with the domain whose name is
        most like theirs.
    """
    settings, published = run.config.settings, run.published.settings
    if settings["profiles"] == published.get("profiles"):
        return {}
    sizes = traces.group_by("task_domain").agg(pl.col("traces").sum())
    domains = sizes.sort("traces", "task_domain", descending=[True, False]).collect(
        engine="streaming"
    )
    names = settings["profiles"].keys() - load_profiles().versions.keys()
    unused = sorted(names - set(domains.get_column("task_domain")))
    likely = domains.head(_DOMAINS).get_column("task_domain").to_list()
    meant = {name: get_close_matches(name, likely, n=1) for name in unused[:_ASKED]}
    return {name: next(iter(meant.get(name, [])), None) for name in unused}
