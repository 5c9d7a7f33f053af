"""Which vectors resemble any earlier one, and how sure the share of a sample is."""

from collections.abc import Iterable, Iterator
from math import sqrt

import numpy as np

from kp_batch.novelty.similar import reaching
from kp_batch.vectors import Bools, Float32s, Int64s

_ROWS, _COLUMNS = 512, 2_048  # of one product, 4 MB
_Z = 1.959963984540054  # the normal distribution has 95% within so many deviations


def resemble_earlier(
    positions: Int64s, vectors: Float32s, parts: Iterable[Float32s], bound: float
) -> Bools:
    """Find which of some vectors resemble any that came before them; see `reaching`.

    A vector that does is compared no further. Of n vectors that come in parts, and k of them that
    are compared, it needs at the most `O(n * k * dimensions)` multiplications.

    Args:
        positions: int64, ascending: of the vectors that are compared.
        vectors: float32, shape (positions, dimensions), unit or zero rows: these.
        parts: all vectors in the order of their positions, from 0 on, some at a time.
        bound: the least cosine of those that resemble each other, above 0 and at most 1.

    Returns:
        bool, shape (positions,).
    """
    found = np.zeros(len(positions), dtype=np.bool_)
    for begin, tile in _tiles(parts):
        left = np.flatnonzero(~found & (positions > begin))
        for start in range(0, len(left), _ROWS):
            rows = left[start : start + _ROWS]
            before = tile[: int(positions[rows[-1]]) - begin]
            alike = reaching(vectors[rows], before, bound)
            if positions[rows[0]] < begin + len(before):
                alike &= np.arange(begin, begin + len(before)) < positions[rows, None]
            found[rows] = alike.any(axis=1)
    return found


def _tiles(parts: Iterable[Float32s]) -> Iterator[tuple[int, Float32s]]:
    """Cut the parts into tiles, each with its first position."""
    begin = 0
    for part in parts:
        for start in range(0, len(part), _COLUMNS):
            yield begin + start, part[start : start + _COLUMNS]
        begin += len(part)


def wilson_interval(hits: int, draws: int) -> tuple[float, float]:
    """The 95% interval of a share, by a sample of it.

    Formula: Wilson's, `(h + z^2 / 2 +- z sqrt(h (n - h) / n + z^2 / 4)) / (n + z^2)` for h hits of
    n draws.

    Args:
        hits: 0..draws.
        draws: at least 1.
    """
    middle = hits + _Z**2 / 2
    reach = _Z * sqrt(hits * (draws - hits) / draws + _Z**2 / 4)
    low, high = ((middle + side * reach) / (draws + _Z**2) for side in (-1, 1))
    return max(low, 0.0), min(high, 1.0)
