"""Replays all published traces with several caches, from the stored vectors, and scores them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from kp_batch.embedding.chunks import read_vectors
from kp_batch.executor import Step
from kp_batch.novelty.replay import replay_windows
from kp_batch.novelty.settings import CacheSettings
from kp_batch.novelty.windows import window_starts
from kp_batch.planning.sizes import rows_in_part
from kp_batch.planning.timeline import RANGE_ROWS
from kp_batch.planning.windows import Span
from kp_batch.scoring.composite import assign, composite, score
from kp_batch.scoring.profiles import ProfileVersions
from kp_batch.staging import Staging
from kp_batch.vectors import Int64s
from kp_batch.whole_files import whole

# One trace with one cache.
SWEPT = pl.Schema(
    {
        "cache": pl.Int64,  # its number
        "task_domain": pl.String,
        "novelty": pl.Float64,
        "score": pl.Float64,
        "score_in_force": pl.Float64,  # with the first cache
    }
)


def sweep_spans(staging: Staging, caches: Sequence[CacheSettings]) -> Iterator[Span]:
    """Cut the rows of `staging.replay` into spans, each as long as a run's.

    Args:
        staging: of the sweep.
        caches: of which each span begins with the window of the widest.
    """
    rows = pl.scan_parquet(staging.replay, glob=False)
    times = rows.select(pl.col("created_at").to_physical())
    last = rows.select(pl.len()).collect().item()
    limit = min(RANGE_ROWS, rows_in_part([staging.replay]))
    reach = max(cache.size for cache in caches)
    for first in range(0, last, limit):
        begin = max(first - reach, 0)
        met = times.slice(begin, first + 1 - begin).collect().to_series().to_numpy()
        warm = begin + min(int(_starts(met, cache)[-1]) for cache in caches)
        yield Span(warm, first, min(first + limit, last))


def sweep_span(
    span: Span,
    caches: Sequence[CacheSettings],
    profiles: ProfileVersions,
    vectors: Path,
    staging: Staging,
) -> Path:
    """Replay one span with each cache.

    Args:
        span: which rows of `staging.replay`.
        caches: the one in force first.
        profiles: the weights.
        vectors: the folder of the vector store.
        staging: of the sweep.

    Returns:
        A file of `SWEPT`: the span's rows in their order, once for each cache.
    """
    rows, places = (
        pl.scan_parquet(path, glob=False).slice(span.warm, span.last - span.warm).collect()
        for path in (staging.replay, staging.vectors)
    )
    own = span.first - span.warm
    times = rows.get_column("created_at").to_physical().to_numpy()
    gathered = read_vectors(vectors, places)
    facts = rows.slice(own).with_columns(assign(profiles))
    swept: list[pl.DataFrame] = []
    for number, cache in enumerate(caches):
        met = replay_windows(gathered, _starts(times, cache), first=own)
        known = facts.with_columns(novelty=met.novelty, cache=pl.lit(number, pl.Int64))
        scored = known.with_columns(composite(profiles.profiles)).with_columns(score())
        in_force = swept[0].get_column("score") if swept else scored.get_column("score")
        swept.append(scored.with_columns(score_in_force=in_force).select(list(SWEPT)))
    path = staging.replayed(span.first)
    with whole(path) as written:
        # A row group for each cache: what looks for one reads no other.
        pl.concat(swept).write_parquet(written, row_group_size=len(facts))
    return path


SWEEP_SPAN = Step("sweep span", sweep_span)


def _starts(times: Int64s, cache: CacheSettings) -> Int64s:
    return window_starts(times, cache.size, cache.ttl)
