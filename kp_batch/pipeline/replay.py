"""The middle steps of a run: texts to vectors, and these to what each trace met."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from kp_batch.archive.reading import BATCH_ROWS
from kp_batch.contracts import NOVELTY
from kp_batch.embedding.encoders import load_encoder
from kp_batch.embedding.store import VectorStore
from kp_batch.novelty.replay import replay
from kp_batch.planning.ingest import reread_texts
from kp_batch.planning.timeline import Texts, Timeline
from kp_batch.planning.windows import Span
from kp_batch.progress import progress
from kp_batch.staging import Stage
from kp_batch.vectors import NO_NEIGHBOUR


def embed(embedder: str, vectors: Path, texts: Texts, stage: Stage) -> None:
    """Embed the texts that have no vector yet; each chunk is kept once made.

    Args:
        embedder: the encoder's name.
        vectors: the folder of all vector stores.
        texts: which.
        stage: the run's files.
    """
    encoder = load_encoder(embedder)
    if encoder is None or texts.missing.is_empty():
        return
    store = VectorStore(vectors / encoder.encoder_id)
    given = chain(_staged(stage.rows), reread_texts(texts.sources))
    with progress("embedding", len(texts.missing), "texts") as shown:
        for chunk in _chunks(given, texts.missing, encoder.chunk_size):
            vectors_of = encoder.encode(chunk.get_column("text").to_list())
            store.add(chunk.get_column("text_hash"), vectors_of)
            shown.add(len(chunk))


def replay_timeline(
    timeline: Timeline,
    cache_size: int,
    ttl: timedelta | None,
    vectors: Path | None,
    stage: Stage,
) -> list[Path]:
    """Replay the spans of a timeline, each warmed up by the rows that its first one meets.

    Args:
        timeline: what to replay.
        cache_size: the cache's capacity.
        ttl: the cache's time to live.
        vectors: the vector store's folder; None: no embedder.
        stage: the run's files.

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
            met = _replayed(span, cache_size, ttl, store, stage)[wanted]
            position = pl.Series("position", wanted + span.first, dtype=pl.UInt32)
            met.insert_column(0, position).write_parquet(stage.replayed(span.first))
            paths.append(stage.replayed(span.first))
            shown.add(len(wanted))
    return paths


def _staged(rows: Path) -> Iterator[pl.DataFrame]:
    with pq.ParquetFile(rows) as parquet:
        for batch in parquet.iter_batches(BATCH_ROWS, columns=["text_hash", "text"]):
            yield cast("pl.DataFrame", pl.from_arrow(batch))


def _chunks(
    frames: Iterable[pl.DataFrame], missing: pl.Series, size: int
) -> Iterator[pl.DataFrame]:
    """The missing hashes with their texts, each once, in frames of `size`."""
    wanted = missing.to_frame("text_hash")
    held = pl.DataFrame(schema={"text_hash": pl.String, "text": pl.String})
    for frame in frames:
        found = frame.unique("text_hash", keep="first", maintain_order=True)
        held = pl.concat([held, found.join(wanted, on="text_hash", how="semi")])
        wanted = wanted.join(held, on="text_hash", how="anti")
        while len(held) >= size:
            yield held.head(size)
            held = held.slice(size)
    if len(held):
        yield held


def _replayed(
    span: Span, cache_size: int, ttl: timedelta | None, store: VectorStore | None, stage: Stage
) -> pl.DataFrame:
    """What each trace of the span met in the cache: a frame of `NOVELTY`."""
    if store is None:
        return _none(span.last - span.first)
    rows = (
        pl.scan_parquet(stage.timeline, glob=False)
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


def _none(rows: int) -> pl.DataFrame:
    """What traces meet where there is no embedder."""
    return pl.DataFrame(
        [
            pl.Series(name, [value], dtype=NOVELTY[name]).new_from_index(0, rows)
            for name, value in zip(NOVELTY, (NO_NEIGHBOUR, None, None, None, 0), strict=True)
        ]
    )
