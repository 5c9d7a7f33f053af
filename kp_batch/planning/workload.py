"""Counts the traces that a run restates, by domain and day, and finds the profiles that remain."""

from dataclasses import asdict

import polars as pl

from kp_batch.contracts import PROFILES
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.timeline import Timeline
from kp_batch.run import Run

_COUNTS = ("replay", "restate", "reweight")


def traces_after(run: Run, fingerprints: pl.DataFrame, timeline: Timeline) -> pl.LazyFrame:
    """All traces that will have a score after the run.

    Args:
        run: the run.
        fingerprints: what computed the published scores, see `State.fingerprints`.
        timeline: the traces around what changed.

    Returns:
        Those of the timeline one by one, with the columns of its rows, and the others by day,
        domain and profile; `traces`: how many.
    """
    on_timeline = timeline.rows.lazy().with_columns(traces=pl.lit(1, pl.Int64))
    elsewhere = fingerprints.lazy().filter(~pl.col("day").is_in(list(timeline.days)))
    as_published = elsewhere.with_columns(
        in_range=run.in_range("day"),
        facts_changed=pl.lit(value=False),
        replay=pl.lit(value=False),
    )
    return pl.concat([on_timeline, as_published.select(on_timeline.collect_schema().names())])


def workload_of(traces: pl.LazyFrame, scorer: Scorer) -> pl.DataFrame:
    """Count the traces to replay, restate and reweight, by domain and day.

    Args:
        traces: see `traces_after`.
        scorer: what the run scores with.
    """
    rescored = pl.col("replay") | pl.col("facts_changed")
    stale = pl.col("in_range") & scorer.profile_is_stale().fill_null(value=False)
    marked = traces.select(
        *("task_domain", "day", "traces", "replay"),
        reweight=stale & ~rescored,
        restate=stale | rescored,
    )
    totals = [
        (pl.col(what).cast(pl.Int64) * pl.col("traces")).sum().alias(what) for what in _COUNTS
    ]
    by_domain = marked.filter("restate").group_by("task_domain", "day").agg(totals)
    return by_domain.sort("day", "task_domain").collect()


def profiles_after(
    traces: pl.LazyFrame, scorer: Scorer, published: pl.DataFrame, *, keep_published: bool
) -> pl.DataFrame:
    """The table of profiles after the run: the registered ones, and those that any score bears.

    Args:
        traces: see `traces_after`.
        scorer: what the run scores with.
        published: the table as it is.
        keep_published: keep every published profile (its file may be gone).
    """
    after = traces.with_columns(replayed="replay").select(scorer.profile_after())
    borne = after.unique().collect().get_column("profile_id")
    loaded = pl.DataFrame(
        [{"profile_id": each.profile_id, **asdict(each)} for each in scorer.profiles.values()],
        schema=PROFILES,
    )
    registered = (published if keep_published else loaded).get_column("profile_id")
    known = pl.concat([published, loaded]).unique("profile_id")
    needed = pl.col("profile_id").is_in(pl.concat([registered, borne]).implode())
    return known.filter(needed).sort("profile_id")
