"""Replays spans of the timeline: finds what each trace met in the cache."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl

from kp_batch.contracts import NOVELTY
from kp_batch.embedding.store import VectorStore
from kp_batch.novelty.cache import NO_NEIGHBOUR
from kp_batch.novelty.replay import replay
from kp_batch.planning.timeline import Timeline
from kp_batch.planning.windows import Span
from kp_batch.progress import progress
from kp_batch.staging import Staging


def replay_timeline(
    timeline: Timeline,
    cache_size: int,
    ttl: timedelta | None,
    vectors: Path | None,
    staging: Staging,
) -> list[Path]:
    """Replay the spans of a timeline, each after a warm-up of the rows that its first one meets.

    Args:
        timeline: what to replay.
        cache_size: the cache's capacity.
        ttl: the cache's time to live.
        vectors: the vector store's folder; None: no embedder.
        staging: the run's files.

    Returns:
        The files it wrote, in time order: the rows to replay as `position` (UInt32, within the
        timeline) and the columns of `NOVELTY`.
    """
    if not timeline.spans:
        return []
    store = VectorStore(vectors) if vectors else None
    paths: list[Path] = []
    with progress("replaying", int(timeline.replay.sum()), "traces") as shown:
        for span in timeline.spans:
            wanted = np.flatnonzero(timeline.replay[span.first : span.last])
            met = _replayed(span, cache_size, ttl, store, staging)[wanted]
            position = pl.Series("position", wanted + span.first, dtype=pl.UInt32)
            met.insert_column(0, position).write_parquet(staging.replayed(span.first))
            paths.append(staging.replayed(span.first))
            shown.add(len(wanted))
    return paths


def _replayed(
    span: Span, cache_size: int, ttl: timedelta | None, store: VectorStore | None, staging: Staging
) -> pl.DataFrame:
    """What each trace of the span met in the cache: a frame of `NOVELTY`."""
    if store is None:
        return _without_encoder(span.last - span.first)
    rows = (
        pl.scan_parquet(staging.timeline, glob=False)
        .select("trace_id", "created_at", "text_hash")
        .slice(span.warm, span.last - span.warm)
        .collect()
    )
    times = rows.get_column("created_at").to_physical().to_numpy()
    vectors = store.gather(rows.get_column("text_hash"))
    met = replay(vectors, times, max_elements=cache_size, ttl=ttl)
    nearest = np.where(met.nearest < 0, 0, met.nearest)
    found = pl.Series(met.nearest >= 0)
    age = (times - times[nearest]) / 1e6  # in NumPy, since Polars would take the reciprocal
    return pl.DataFrame(
        {
            "novelty": met.novelty,
            "max_similarity": pl.Series(met.max_similarity).fill_nan(None),
            "nearest_trace_id": rows.get_column("trace_id").gather(nearest).set(~found, None),
            "nearest_age_s": pl.Series(age).set(~found, None),
            "cache_size": met.cache_size,
        },
        schema=dict(NOVELTY),
    ).slice(span.first - span.warm)


def _without_encoder(rows: int) -> pl.DataFrame:
    """The frame of `NOVELTY` where there is no embedder."""
    return pl.DataFrame(
        [
            pl.Series(name, [value], dtype=NOVELTY[name]).new_from_index(0, rows)
            for name, value in zip(NOVELTY, (NO_NEIGHBOUR, None, None, None, 0), strict=True)
        ]
    )
