"""Chooses vectors that are not alike, the first ones first."""

from collections.abc import Iterator

import numpy as np

from kp_batch.novelty.candidates import BAND
from kp_batch.vectors import Bools, Float32s, cosines

_ROWS = 512  # of a block
_COLUMNS = 2_048  # of vectors that were taken, for one product: 4 MB with a block
_PAIRS = 4_096  # compared at once: they are copied


class Distinct:
    """Takes each vector whose cosine to every one taken before is below a bound.

    A matrix product decides where it is farther from the bound than it can be off; within that
    band `vectors.cosines` does, as for novelty. Equal vectors are alike whatever the bound, though
    rounding may leave their cosine below 1. A zero vector is like no other.

    Of n vectors, k of which are taken, it needs `O(n * k * dimensions)` multiplications and the
    memory of k vectors.

    Args:
        bound: above 0, at most 1.
    """

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._tiles: list[Float32s] = []  # of vectors that were taken, the last one not full
        self._taken = 0

    def take(self, vectors: Float32s) -> Bools:
        """Tell which of the next vectors are taken.

        Args:
            vectors: float32, shape (n, dimensions), unit or zero rows, each time of the same
                dimensions.

        Returns:
            bool, shape (n,).
        """
        taken = np.zeros(len(vectors), dtype=np.bool_)
        for first in range(0, len(vectors), _ROWS):
            block = vectors[first : first + _ROWS]
            rows = np.arange(len(block))
            for tile in self._filled():
                rows = rows[~self._alike(tile, block[rows]).any(axis=0)]
            rows = rows[self._unlike_earlier(block[rows])]
            self._keep(block[rows])
            taken[first + rows] = True
        return taken

    def _filled(self) -> Iterator[Float32s]:
        for at, tile in enumerate(self._tiles):
            yield tile[: self._taken - at * _COLUMNS]

    def _keep(self, vectors: Float32s) -> None:
        for vector in vectors:
            at = self._taken % _COLUMNS
            if not at:
                self._tiles.append(np.empty((_COLUMNS, len(vector)), dtype=np.float32))
            self._tiles[-1][at] = vector
            self._taken += 1

    def _unlike_earlier(self, vectors: Float32s) -> Bools:
        """Which vectors are unlike all of these before them that are so, too."""
        alike = np.triu(self._alike(vectors, vectors), 1)
        left = np.ones(len(vectors), dtype=np.bool_)
        for row in range(len(vectors)):
            if left[row]:
                left &= ~alike[row]
        return left

    def _alike(self, left: Float32s, right: Float32s) -> Bools:
        """Which pairs reach the bound: bool, shape (left, right)."""
        above = left @ right.T - np.float32(self._bound)
        alike = above > BAND
        near = np.flatnonzero(np.abs(above) <= BAND)
        for start in range(0, len(near), _PAIRS):
            pairs = near[start : start + _PAIRS]
            row, column = np.divmod(pairs, len(right))
            first, second = left[row], right[column]
            equal = (first == second).all(axis=1) & first.any(axis=1)
            alike.flat[pairs] = (cosines(first, second) >= self._bound) | equal
        return alike
