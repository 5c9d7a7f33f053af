"""What a run comes to: how many traces it restates, and which profiles it leaves."""

from dataclasses import asdict

import polars as pl

from kp_batch.contracts import PROFILES
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.timeline import Timeline
from kp_batch.run import Run

_WORK = ("task_domain", "day", "replay", "restate", "recombine")


def traces_left(run: Run, fingerprints: pl.DataFrame, timeline: Timeline) -> pl.LazyFrame:
    """All traces that there will be.

    Args:
        run: the run.
        fingerprints: what computed the published scores, see `Archive.fingerprints`.
        timeline: the traces around what changed.

    Returns:
        Those of the timeline one by one, with the columns of its rows, and the others by day,
        domain and profile; `traces`: how many.
    """
    looked_at = timeline.rows.lazy().with_columns(traces=pl.lit(1, pl.Int64))
    elsewhere = fingerprints.lazy().filter(~pl.col("day").is_in(list(timeline.days)))
    as_published = elsewhere.with_columns(
        in_range=run.in_range("day"),
        restated=pl.lit(value=False),
        replay=pl.lit(value=False),
    )
    return pl.concat([looked_at, as_published.select(looked_at.collect_schema().names())])


def work_on(traces: pl.LazyFrame, scorer: Scorer) -> pl.DataFrame:
    """How many traces are to be replayed, restated and recombined, by domain and day.

    Args:
        traces: see `traces_left`.
        scorer: what the run scores with.
    """
    by_itself = pl.col("replay") | pl.col("restated")
    weighted = pl.col("in_range") & scorer.weighted_otherwise().fill_null(value=False)
    marked = traces.select(
        *("task_domain", "day", "traces", "replay"),
        recombine=weighted & ~by_itself,
        restate=weighted | by_itself,
    )
    totals = [
        (pl.col(what).cast(pl.Int64) * pl.col("traces")).sum().alias(what) for what in _WORK[2:]
    ]
    work = marked.filter("restate").group_by("task_domain", "day").agg(totals)
    return work.select(_WORK).sort("day", "task_domain").collect()


def profiles_left(
    traces: pl.LazyFrame, scorer: Scorer, published: pl.DataFrame, *, forgetting: bool
) -> pl.DataFrame:
    """The table of profiles as the run leaves it: the registered ones, and all that a score bears.

    Args:
        traces: see `traces_left`.
        scorer: what the run scores with.
        published: the table as it is.
        forgetting: the profiles file may be gone: all that are published stay.
    """
    left = traces.with_columns(replayed="replay").select(scorer.profile_left())
    borne = left.unique().collect().get_column("profile_id")
    loaded = pl.DataFrame(
        [{"profile_id": each.profile_id, **asdict(each)} for each in scorer.profiles.values()],
        schema=PROFILES,
    )
    registered = (published if forgetting else loaded).get_column("profile_id")
    known = pl.concat([published, loaded]).unique("profile_id")
    needed = pl.col("profile_id").is_in(pl.concat([registered, borne]).implode())
    return known.filter(needed).sort("profile_id")
