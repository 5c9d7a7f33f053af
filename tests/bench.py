"""`make bench`: each figure beside something that does comparable work in the same run."""

import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from flows.intake import arrange, read_archive
from flows.rescore import rescore_archive
from flows.stage import Stage
from kp_batch.archive.reading import read_rows
from kp_batch.archive.sources import discover
from kp_batch.config import RescoreConfig
from kp_batch.facts import facts, hashes
from kp_batch.novelty.cache import VectorCache
from kp_batch.novelty.replay import replay
from kp_batch.novelty.similarity import unit
from kp_batch.sample import write_sample
from kp_batch.scoring.composite import composite, dimensions, overrides, score
from kp_batch.scoring.profiles import load_profiles

REPLAYED, LOOPED, CACHED = 100_000, 20_000, 300
ARCHIVE = 50_000
CAPACITY, DIMENSIONS = 1_000, 384
T = TypeVar("T")


def main() -> None:
    """Print the table."""
    bench_replay()
    with tempfile.TemporaryDirectory() as folder:
        bench_archive(Path(folder))


def bench_replay() -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(REPLAYED, DIMENSIONS)))
    times = np.arange(REPLAYED, dtype=np.int64)
    print(f"replay, {DIMENSIONS} dimensions, a cache of {CAPACITY}")
    _row("blocked replay, exact", REPLAYED, lambda: replay(vectors, times))
    _row("the same float32 products alone", REPLAYED, lambda: _products(vectors))
    _row("numpy, one trace at a time", LOOPED, lambda: _loop(vectors[:LOOPED]))
    cache, now = VectorCache(CAPACITY, DIMENSIONS), datetime(2026, 1, 1, tzinfo=UTC)
    for vector in vectors[:CAPACITY]:
        cache.add(vector, now)
    rest = vectors[CAPACITY : CAPACITY + CACHED]
    _row("VectorCache, one trace at a time", CACHED, lambda: _cached(cache, rest, now))


def bench_archive(folder: Path) -> None:
    write_sample(folder / "archive", traces=ARCHIVE, days=100)
    sources = discover([str(folder / "archive")])
    print(f"an archive of {ARCHIVE:,} traces in {len(sources)} Parquet files")
    paths = [source.path for source in sources]
    _row("pyarrow, reading every column", ARCHIVE, lambda: [pq.read_table(p) for p in paths])
    rows = _row("reading", ARCHIVE, lambda: [b for s in sources for b in read_rows(s)])
    _row(
        "facts",
        ARCHIVE,
        lambda: [
            each.lazy().with_columns(facts()).with_columns(hashes()).collect() for each in rows
        ],
    )
    stage = Stage(folder / "staging" / "bench")
    stage.begin()
    _row("reading, checking, facts, written", ARCHIVE, lambda: read_archive(sources, stage))
    _row("settling and ordering", ARCHIVE, lambda: arrange([], stage))
    _row("scoring", ARCHIVE, lambda: _score(stage))
    config = RescoreConfig(
        archive=(str(folder / "archive"),), warehouse=folder / "warehouse", embedder="hashing"
    )
    _row("a whole run, hashing encoder", ARCHIVE, lambda: rescore_archive(config))
    _row("the same again, nothing to embed", ARCHIVE, lambda: rescore_archive(config))


def _row(label: str, count: int, work: Callable[[], T]) -> T:
    began = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - began
    print(f"  {label:<36}{count / seconds:>12,.0f} traces/s", flush=True)
    return result


def _products(vectors: np.ndarray) -> None:
    for first in range(0, len(vectors), 256):
        vectors[first : first + 256] @ vectors[max(0, first - CAPACITY) : first + 256].T


def _loop(vectors: np.ndarray) -> list[float]:
    return [
        float((vectors[max(0, row - CAPACITY) : row] @ vectors[row]).max(initial=-1.0))
        for row in range(len(vectors))
    ]


def _cached(cache: VectorCache, vectors: np.ndarray, now: datetime) -> None:
    for vector in vectors:
        cache.max_cosine_similarity(vector, now)
        cache.add(vector, now)
        now += timedelta(seconds=1)


def _score(stage: Stage) -> pl.DataFrame:
    return (
        pl.scan_parquet(stage.timeline)
        .with_columns(*dimensions(), *overrides(), novelty=pl.lit(0.5))
        .with_columns(composite(load_profiles()))
        .with_columns(score())
        .collect(engine="streaming")
    )


if __name__ == "__main__":
    main()
