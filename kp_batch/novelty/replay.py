"""Replays the cache's whole history as a banded matrix product: every trace's novelty at its time.

Each trace is added and the cache is first in, first out, so trace i meets a contiguous run of the
traces before it, its window. A block of traces therefore needs one product with the rows that any
of their windows holds. That product only nominates, see candidates.py; `cosines` decides. A change
here that changes a result raises `settings.REPLAY_VERSION`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from kp_batch.novelty.cache import novelty
from kp_batch.novelty.candidates import Candidates
from kp_batch.novelty.windows import window_starts
from kp_batch.vectors import Bools, Float32s, Float64s, Int64s, cosines, is_unit

# Rows of one block: an eighth of the widest window, within these bounds. Longer blocks multiply
# faster, but more of their pairs are in no window.
_FEWEST, _MOST = 128, 256
_PAIRS = 256  # compared at once: they are copied


@dataclass(frozen=True)
class Replay:
    """What each trace met in the cache. All arrays have one element a trace."""

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
    block: int = _MOST,
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


def replay_windows(
    vectors: Float32s,
    starts: Int64s,
    *,
    first: int = 0,
    wanted: Bools | None = None,
    block: int = _MOST,
) -> Replay:
    """Compute what each trace met in a given window; see `replay`.

    Args:
        vectors: float32, shape (n, dimensions), unit or zero rows, in replay order.
        starts: int64, shape (n,), ascending: row i meets rows `[starts[i], i)`.
        first: the first row of the result; those before it are met only.
        wanted: bool, shape (n,): only these rows' results count, the others' may be anything; None
            for all.
        block: the most rows of one matrix product, at least 1; changes the speed, never the result.

    Raises:
        ValueError: the shapes differ, a row is neither unit nor zero, or block is not positive.
    """
    _check(vectors, starts, block)
    candidates = Candidates.of(vectors, starts)
    sizes = np.arange(len(starts), dtype=np.int64) - starts
    decided = _Decided.of(vectors)
    length = min(block, max(int(sizes.max(initial=0)) // 8, _FEWEST))
    rows = np.arange(len(starts)) if wanted is None else np.flatnonzero(wanted)
    for begin, end in _blocks(rows[np.searchsorted(rows, first) :], length):
        for row, column in candidates.nominate(begin, end):
            decided.compare(row, column)
    similarity, nearest = _settled(decided, candidates.real, starts)
    return Replay(similarity[first:], nearest[first:], sizes[first:])


def _blocks(rows: Int64s, length: int) -> Iterator[tuple[int, int]]:
    """Cut ascending rows into ranges of at most this length, without what stands between them."""
    while len(rows):
        count = int(np.searchsorted(rows, rows[0] + length))
        yield int(rows[0]), int(rows[count - 1]) + 1
        rows = rows[count:]


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


@dataclass(frozen=True)
class _Decided:
    """What exact cosines have decided: the nearest trace to each, the oldest of equals.

    The copies of pairs go into memory that stays: fresh memory costs more than the arithmetic, and
    makes threads wait for each other.
    """

    vectors: Float32s
    similarity: Float64s
    nearest: Int64s
    pairs: Float32s  # shape (2, _PAIRS, dimensions)
    work: Float64s  # the same shape

    @classmethod
    def of(cls, vectors: Float32s) -> "_Decided":
        rows, shape = len(vectors), (2, _PAIRS, vectors.shape[1])
        nobody = np.full(rows, -1, dtype=np.int64)
        return cls(
            vectors,
            np.full(rows, -np.inf),
            nobody,
            np.empty(shape, dtype=np.float32),
            np.empty(shape),
        )

    def compare(self, row: Int64s, column: Int64s) -> None:
        """Let rows meet columns, which ascend, and are later than those met before."""
        exact = np.empty(len(row))
        for start in range(0, len(row), _PAIRS):
            part = slice(start, start + _PAIRS)
            exact[part] = self._cosines(row[part], column[part])
        before = self.similarity[row]
        np.maximum.at(self.similarity, row, exact)
        won = np.flatnonzero((exact > before) & (exact == self.similarity[row]))[::-1]
        self.nearest[row[won]] = column[won]  # of equals the last assigned stays: the oldest

    def _cosines(self, row: Int64s, column: Int64s) -> Float64s:
        left, right = self.pairs[:, : len(row)]
        for rows, out in ((row, left), (column, right)):
            self.vectors.take(rows, axis=0, out=out, mode="clip")  # other modes copy once more
        return cosines(left, right, self.work[:, : len(row)])


def _settled(decided: _Decided, real: Bools, starts: Int64s) -> tuple[Float64s, Int64s]:
    """Let the similarity 0 of a zero vector beat negative ones; it is nobody's nearest.

    A row without a nearest one that met any has met zero vectors alone, or is one.
    """
    similarity, nearest = decided.similarity, decided.nearest
    zeros_before = np.concatenate([[0], np.cumsum(~real)])
    met_zero = zeros_before[:-1] > zeros_before[starts]
    beaten = (nearest < 0) | (met_zero & (similarity < 0))
    similarity[beaten] = 0.0
    nearest[beaten] = -1
    similarity[starts == np.arange(len(starts))] = np.nan
    return similarity, nearest
