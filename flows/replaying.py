"""The middle steps of a run: the traces' texts to vectors, and these to what each trace met."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from flows.stage import Stage
from kp_batch.archive.reading import BATCH_ROWS
from kp_batch.contracts import NOVELTY
from kp_batch.embedding.encoders import load_encoder
from kp_batch.embedding.store import VectorStore
from kp_batch.novelty.replay import replay
from kp_batch.novelty.similarity import NO_NEIGHBOUR
from kp_batch.progress import progress

# Traces replayed at once: their vectors are 50 MB at 384 dimensions.
RANGE_ROWS = 32_768


@dataclass(frozen=True)
class Embedding:
    """What embedding came to; each distinct text counts once."""

    encoder_id: str
    vectors: Path | None  # the folder of their store; None: no embedder
    embedded: int
    reused: int


def embed(embedder: str, vectors: Path, stage: Stage) -> Embedding:
    """Embed the accepted traces' texts that have no vector yet; each chunk is kept once made.

    Args:
        embedder: the encoder's name.
        vectors: the folder of all vector stores.
        stage: the run's files.
    """
    encoder = load_encoder(embedder)
    if encoder is None:
        return Embedding("none", None, 0, 0)
    folder = vectors / encoder.encoder_id
    store = VectorStore(folder)
    hashes_of = pl.scan_parquet(stage.timeline, glob=False).select("text_hash").unique().collect()
    missing = store.missing(hashes_of.get_column("text_hash"))
    if len(missing):
        with progress("embedding", len(missing), "texts") as shown:
            for chunk in _texts(stage.rows, missing, encoder.chunk_size):
                texts = chunk.get_column("text").to_list()
                store.add(chunk.get_column("text_hash"), encoder.encode(texts))
                shown.add(len(chunk))
    reused = len(hashes_of) - len(missing)
    return Embedding(encoder.encoder_id, folder, len(missing), reused)


def replay_timeline(
    rows: int, cache_size: int, ttl: timedelta | None, vectors: Path | None, stage: Stage
) -> list[Path]:
    """Replay the timeline, a range of rows at a time, each warmed up by the rows before it.

    Args:
        rows: the timeline's length.
        cache_size: the cache's capacity.
        ttl: the cache's time to live.
        vectors: the vector store's folder; None: no embedder.
        stage: the run's files.

    Returns:
        The files it wrote, in time order: the timeline's columns and those of `NOVELTY`.
    """
    store = VectorStore(vectors) if vectors else None
    paths: list[Path] = []
    with progress("replaying", rows, "traces") as shown:
        for start in range(0, rows, RANGE_ROWS):
            first = max(0, start - cache_size) if store else start
            part = pl.scan_parquet(stage.timeline, glob=False)
            timeline = part.slice(first, start - first + RANGE_ROWS).collect()
            novelty = _novelty(timeline, cache_size, ttl, store) if store else _none(timeline)
            replayed = pl.concat([timeline, novelty], how="horizontal").slice(start - first)
            replayed.write_parquet(stage.replayed(start))
            paths.append(stage.replayed(start))
            shown.add(len(replayed))
    return paths


def _texts(rows: Path, missing: pl.Series, chunk_size: int) -> Iterator[pl.DataFrame]:
    """The missing hashes with their texts, each once, in frames of `chunk_size`."""
    wanted = missing.to_frame()
    held = pl.DataFrame(schema={"text_hash": pl.String, "text": pl.String})
    with pq.ParquetFile(rows) as parquet:
        for batch in parquet.iter_batches(BATCH_ROWS, columns=["text_hash", "text"]):
            texts = cast("pl.DataFrame", pl.from_arrow(batch)).unique("text_hash", keep="first")
            held = pl.concat([held, texts.join(wanted, on="text_hash", how="semi")])
            wanted = wanted.join(held, on="text_hash", how="anti")
            while len(held) >= chunk_size:
                yield held.head(chunk_size)
                held = held.slice(chunk_size)
    if len(held):
        yield held


def _novelty(
    timeline: pl.DataFrame, cache_size: int, ttl: timedelta | None, store: VectorStore
) -> pl.DataFrame:
    """What each trace met in the cache: a frame of `NOVELTY`."""
    times = timeline.get_column("created_at").to_physical()
    met = replay(
        store.gather(timeline.get_column("text_hash")),
        times.to_numpy(),
        max_elements=cache_size,
        ttl=ttl,
    )
    nearest = pl.Series(np.where(met.nearest < 0, 0, met.nearest))
    found = pl.Series(met.nearest >= 0)
    return pl.DataFrame(
        {
            "novelty": met.novelty,
            "max_similarity": pl.Series(met.max_similarity).fill_nan(None),
            "nearest_trace_id": timeline.get_column("trace_id").gather(nearest).set(~found, None),
            "nearest_age_s": ((times - times.gather(nearest)) / 1e6).set(~found, None),
            "cache_size": met.cache_size,
        },
        schema=dict(NOVELTY),
    )


def _none(timeline: pl.DataFrame) -> pl.DataFrame:
    """What a trace meets where there is no embedder."""
    return pl.DataFrame(
        [
            pl.Series(name, [value], dtype=NOVELTY[name]).new_from_index(0, len(timeline))
            for name, value in zip(NOVELTY, (NO_NEIGHBOUR, None, None, None, 0), strict=True)
        ]
    )
