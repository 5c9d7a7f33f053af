"""The replay beside the float32 products alone that it cannot do without, both on one core."""

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
from threadpoolctl import threadpool_limits

from kp_batch.novelty.cache import VectorCache
from kp_batch.novelty.replay import replay_windows
from kp_batch.vectors import Float32s, unit

DIMENSIONS, CAPACITY = 384, 1_000
LOOPED, CACHED = 20_000, 300
REPEATED = 5


def bench_replay() -> None:
    """Print the rates, and their ratios to that of the products."""
    generator = np.random.default_rng(0)
    print(f"replay, {DIMENSIONS} dimensions, one core")
    with threadpool_limits(1):
        vectors = _random(generator, 100_000)
        _compare("a cache of 1,000", vectors, CAPACITY)
        _compare("a cache of 100", vectors, 100)
        _compare("a cache of 50,000", vectors[:52_048], 50_000, first=50_000)
        _compare("half are exact duplicates", _repeated(generator, vectors[:20_000]), CAPACITY)
        _groups(vectors)
        _compare("a hundred near duplicates", _near(generator, 20_000), CAPACITY)
        _rate("numpy, one trace at a time", LOOPED, _seconds(lambda: _loop(vectors[:LOOPED])))
        _rate("VectorCache, one trace at a time", CACHED, _cached(vectors[: CAPACITY + CACHED]))


def _random(generator: np.random.Generator, rows: int) -> Float32s:
    return unit(generator.standard_normal((rows, DIMENSIONS)))


def _repeated(generator: np.random.Generator, vectors: Float32s) -> Float32s:
    """Every second vector, on average, as one of the cache's before it."""
    rows = np.arange(len(vectors))
    earlier = np.maximum(rows - generator.integers(1, CAPACITY, len(rows)), 0)
    return vectors[np.where(generator.random(len(rows)) < 0.5, earlier, rows)]


def _near(generator: np.random.Generator, rows: int) -> Float32s:
    """Groups of a hundred vectors whose similarities differ by less than float32 products err."""
    topics = np.repeat(_random(generator, rows // 100), 100, axis=0)
    return unit(topics + 1e-4 * generator.standard_normal(topics.shape))


def _groups(vectors: Float32s) -> None:
    """A cache for each of many groups, all in one replay, beside one cache for as many traces."""
    rows = np.arange(len(vectors))
    one = _seconds(lambda: replay_windows(vectors, np.maximum(rows - CAPACITY, 0)))
    for number in (100, 20_000):
        size = len(vectors) // number
        starts = np.maximum(rows - CAPACITY, rows // size * size)
        ours = _seconds(lambda starts=starts: replay_windows(vectors, starts))
        _rate(f"{number:,} groups", len(vectors), ours, f"{ours / one:>8.2f} times of one group's")
    starts, last = np.maximum(rows - CAPACITY, rows // 1_000 * 1_000), rows % 1_000 >= 980
    night = _seconds(lambda: replay_windows(vectors, starts, wanted=last))
    _rate("the last 20 of 100 groups", int(last.sum()), night, f"{night / one:>8.2f} times of all")


def _compare(label: str, vectors: Float32s, capacity: int, first: int = 0) -> None:
    """Print the median rates of interleaved runs, of the rows from `first` on."""
    starts = np.maximum(np.arange(len(vectors)) - capacity, 0)
    timed = [
        (
            _seconds(lambda: replay_windows(vectors, starts, first=first)),
            _seconds(lambda: _products(vectors, capacity, first)),
        )
        for _ in range(REPEATED)
    ]
    ours, products = map(statistics.median, zip(*timed, strict=True))
    _rate(label, len(vectors) - first, ours, f"{products / ours:>8.2f} of the products")


def _products(vectors: Float32s, capacity: int, first: int) -> None:
    for row in range(first, len(vectors), 256):
        vectors[row : row + 256] @ vectors[max(0, row - capacity) : row + 256].T


def _loop(vectors: Float32s) -> list[float]:
    return [
        float((vectors[max(0, row - CAPACITY) : row] @ vectors[row]).max(initial=-1.0))
        for row in range(len(vectors))
    ]


def _cached(vectors: Float32s) -> float:
    cache, now = VectorCache(CAPACITY, DIMENSIONS), datetime(2026, 1, 1, tzinfo=UTC)
    for vector in vectors[:CAPACITY]:
        cache.add(vector, now)

    def ask() -> None:
        for row, vector in enumerate(vectors[CAPACITY:]):
            at = now + timedelta(seconds=row)
            cache.max_cosine_similarity(vector, at)
            cache.add(vector, at)

    return _seconds(ask)


def _seconds(work: Callable[[], object]) -> float:
    """The processor's seconds, which other programs on the machine change little."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _rate(label: str, count: int, seconds: float, beside: str = "") -> None:
    print(f"  {label:<36}{count / seconds:>12,.0f} traces/s{beside}", flush=True)


if __name__ == "__main__":
    bench_replay()
