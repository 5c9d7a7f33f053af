"""Replays the cache's whole history as a banded matrix product: every trace's novelty at its time.

Each trace is added and the cache is first in, first out, so trace i meets a contiguous run of the
traces before it, its window. A block of traces therefore needs one product with the rows that any
of their windows holds. That product only nominates: its last bits vary with block, threads and
library, so every similarity within `_BAND` of a row's greatest is computed again by `cosines`,
which decides. A change here that changes a result raises `settings.REPLAY_VERSION`.
"""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from kp_batch.novelty.cache import novelty
from kp_batch.novelty.twins import previous_equal
from kp_batch.novelty.windows import blocks, window_starts
from kp_batch.vectors import Bools, Float32s, Float64s, Int64s, cosines, is_unit, nonzero

# float32 products of unit vectors were off by at most 1.3e-6; a band of 1e-5 misses
# no true maximum and nominates few others.
_BAND = np.float32(1e-5)
# Pairs computed again at once: 4,096 x 384 float64 is 12 MB a side, which fits the processor's
# caches.
_PAIRS = 4_096
# Elements of one product: 128 MB of float32, however large the windows are.
_PRODUCT = 1 << 25
_NONE = np.float32(-np.inf)


@dataclass(frozen=True)
class Replay:
    """What each trace met in the cache. All arrays have shape (n,)."""

    max_similarity: Float64s  # NaN where the cache was empty
    nearest: Int64s  # row of the nearest trace; -1 where there is none
    cache_size: Int64s  # vectors in the cache

    @property
    def novelty(self) -> Float64s:
        """Novelty of each trace at its own time; see `cache.novelty`."""
        return novelty(self.max_similarity)


def replay(
    vectors: Float32s,
    times: Int64s,
    *,
    max_elements: int = 1_000,
    ttl: timedelta | None = None,
    block: int = 256,
) -> Replay:
    """Compute what `VectorCache` returns for each trace when they come one at a time.

    The result equals the cache's to the bit, whatever the block, the threads and the library. To
    replay a part of a history, begin `max_elements` rows earlier and drop those rows from the
    result.

    Args:
        vectors: float32, shape (n, dimensions), unit or zero rows, in replay order.
        times: int64, shape (n,), microseconds, ascending.
        max_elements: the cache's capacity, at least 1.
        ttl: the cache's time to live, None for no limit.
        block: the most rows of one matrix product, at least 1; changes the speed, never the result.

    Raises:
        ValueError: lengths differ, times descend, a row is neither unit nor zero, or max_elements,
            ttl or block is not positive.
    """
    if (np.diff(times) < 0).any():
        raise ValueError("times are ascending; sort the traces by (created_at, id)")
    if max_elements < 1 or (ttl is not None and ttl <= timedelta(0)):
        raise ValueError("max_elements and ttl are positive")
    return replay_windows(vectors, window_starts(times, max_elements, ttl), block=block)


def replay_windows(vectors: Float32s, starts: Int64s, *, block: int = 256) -> Replay:
    """Compute what each trace met in a given window; see `replay`.

    Args:
        vectors: float32, shape (n, dimensions), unit or zero rows, in replay order.
        starts: int64, shape (n,), ascending: row i meets rows `[starts[i], i)`.
        block: the most rows of one matrix product, at least 1; changes the speed, never the result.

    Raises:
        ValueError: the shapes differ, a row is neither unit nor zero, or block is not positive.
    """
    _check(vectors, starts, block)
    rows = np.arange(len(starts), dtype=np.int64)
    real = nonzero(vectors)
    # Only the oldest of equal vectors in a window can be nearest. Leaving the later ones out, first
    # those that are later for all rows of a block, keeps an archive of repeated texts as cheap as
    # one of different texts.
    twin = previous_equal(vectors)
    similarity = np.where(starts < rows, 0.0, np.nan)
    nearest = np.full(len(rows), -1, dtype=np.int64)
    for first, last in blocks(starts, block, _PRODUCT):
        low = int(starts[first])
        product = vectors[first:last] @ vectors[low:last].T
        _blank_unseen(product, rows[first:last] - low, starts[first:last] - low)
        product[:, ~real[low:last] | (twin[low:last] >= starts[last - 1])] = _NONE
        row, column = _nominate(product, real[first:last])
        row, column = row + first, column + low
        oldest = twin[column] < starts[row]
        _decide(vectors, row[oldest], column[oldest], similarity, nearest)
    _prefer_zero_vectors(real, starts, similarity, nearest)
    return Replay(similarity, nearest, rows - starts)


def _check(vectors: Float32s, starts: Int64s, block: int) -> None:
    if vectors.ndim != 2 or vectors.dtype != np.float32 or len(vectors) != len(starts):
        raise ValueError(
            f"vectors are float32 of shape ({len(starts)}, dimensions), "
            f"got {vectors.dtype} of shape {vectors.shape}"
        )
    if block < 1:
        raise ValueError("block is positive")
    odd = ~is_unit(vectors)
    if odd.any():
        raise ValueError(
            f"row {int(odd.argmax())} is neither a unit nor a zero vector; normalise the vectors"
        )


def _blank_unseen(product: Float32s, own: Int64s, starts: Int64s) -> None:
    """Blank, in place, the columns outside each row's window: itself, later and dropped rows.

    Only the two triangles in which the block's rows differ are compared.
    """
    columns = np.arange(product.shape[1])
    later = slice(int(own[0]), None)
    product[:, later][columns[later] >= own[:, None]] = _NONE
    gone = slice(0, int(starts[-1]))
    product[:, gone][columns[gone] < starts[:, None]] = _NONE


def _nominate(product: Float32s, real: Bools) -> tuple[Int64s, Int64s]:
    """The (row, column) pairs within the band of their row's maximum; zero vectors have none."""
    greatest = product.max(axis=1)
    floor = np.where(real & (greatest > _NONE), greatest - _BAND, np.float32(np.inf))
    # flatnonzero is several times as fast as nonzero where hits are this rare.
    return np.divmod(np.flatnonzero(product >= floor[:, None]), product.shape[1])


def _decide(
    vectors: Float32s, row: Int64s, column: Int64s, similarity: Float64s, nearest: Int64s
) -> None:
    """Let exact cosines decide between each row's candidates; the oldest wins a tie."""
    exact = np.empty(len(row), dtype=np.float64)
    for start in range(0, len(row), _PAIRS):
        part = slice(start, start + _PAIRS)
        exact[part] = cosines(vectors[row[part]], vectors[column[part]])
    order = np.lexsort((column, -exact, row))
    row, column, exact = row[order], column[order], exact[order]
    best = np.flatnonzero(np.diff(row, prepend=-1))
    similarity[row[best]] = exact[best]
    nearest[row[best]] = column[best]


def _prefer_zero_vectors(
    real: Bools, starts: Int64s, similarity: Float64s, nearest: Int64s
) -> None:
    """Let the similarity 0 of a zero vector beat negative ones; it is nobody's nearest."""
    zeros_before = np.concatenate([[0], np.cumsum(~real)])
    met_zero = zeros_before[:-1] > zeros_before[starts]
    beaten = met_zero & (similarity < 0)
    similarity[beaten] = 0.0
    nearest[beaten] = -1
