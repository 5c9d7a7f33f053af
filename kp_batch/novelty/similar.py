"""The vectors that some vectors resemble most, of a cache or of many, and the distinct of many."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

import numpy as np

from kp_batch.novelty.replay import BAND, NARROW_BAND, PAIRS_OF_A_COSINE
from kp_batch.vectors import Bools, Float32s, Float64s, Int64s, cosines, nonzero

_ROWS = 512  # of a block
_COLUMNS = 2_048  # of vectors that were taken, for one product: 4 MB with a block
_PAIRS = 4_096  # compared at once, since they are copied


@dataclass(frozen=True)
class Nearby:
    """The vectors that a vector resembles most."""

    max_similarity: float | None  # as `VectorCache.max_cosine_similarity` has it
    nearest: tuple[tuple[int, float], ...]  # row and cosine; the oldest first of equal ones


@dataclass(frozen=True)
class Similar:
    """A trace that the cache held when another one came."""

    trace_id: str  # empty where a session scored one that has none
    task_domain: str
    created_at: str  # ISO 8601, UTC
    similarity: float  # the cosine, -1..1
    age_s: float  # how much earlier it was made, seconds

    @classmethod
    def to(cls, moment: datetime, row: Mapping[str, Any], similarity: float) -> Self:
        """The trace of a row of `scores`, similar to one made at a moment."""
        return cls(
            trace_id=row["trace_id"],
            task_domain=row["task_domain"],
            created_at=row["created_at"].isoformat(),
            similarity=similarity,
            age_s=(moment - row["created_at"]).total_seconds(),
        )


def most_similar(
    vectors: Sequence[Float32s],
    parts: Iterable[Float32s],
    most: int,
    without: Sequence[int | None] | None = None,
    first: int = 0,
) -> list[Nearby]:
    """Find the vectors of a cache that each of some vectors resembles most.

    Cosines are those of `VectorCache`, to the bit: `cosines` decides. A zero vector is nobody's
    nearest, and none is nearest to it; its similarity to any other is 0.

    Args:
        vectors: each float32, shape (dimensions,), a unit or a zero vector.
        parts: the cache's vectors, the oldest first, some rows at a time: float32, shape
            (rows, dimensions), unit or zero rows.
        most: how many are listed at the most.
        without: for each vector a row that counts as if the cache did not hold it; None for none.
        first: the number of the first row.
    """
    left_out = without or [None] * len(vectors)
    tops = [_TopK(vector, row, most) for vector, row in zip(vectors, left_out, strict=True)]
    for part in parts:
        real = nonzero(part)
        for top in tops:
            top.add(part, real, first)
        first += len(part)
    return [top.nearby() for top in tops]


def cosines_to(vector: Float32s, vectors: Float32s) -> Float64s:
    """The cosine of one unit vector to each of others: float64, shape (rows,)."""
    starts = range(0, len(vectors), _PAIRS)
    parts = (vectors[start : start + _PAIRS] for start in starts)
    exact = [cosines(np.broadcast_to(vector, part.shape), part) for part in parts]
    return np.concatenate([np.empty(0), *exact])


@dataclass
class _TopK:
    """The rows that one vector resembles most, among those it was compared with."""

    vector: Float32s
    without: int | None
    most: int
    best: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    is_alone: bool = True
    has_zero: bool = False  # or is one itself

    def add(self, part: Float32s, real: np.ndarray, first: int) -> None:
        """Compare it with more rows, of which `first` is the number of the first."""
        counted = np.ones(len(part), dtype=np.bool_)
        if self.without is not None and first <= self.without < first + len(part):
            counted[self.without - first] = False
        self.is_alone &= not counted.any()
        comparable = real & counted & self.vector.any()
        self.has_zero |= bool((counted & ~comparable).any())
        similarities = cosines(np.broadcast_to(self.vector, part.shape), part)
        rows = np.flatnonzero(comparable)
        chosen = rows[np.argsort(-similarities[rows], kind="stable")[: self.most]]
        best = [(first + int(row), float(similarities[row])) for row in chosen]
        self.best = sorted([*self.best, *best], key=lambda row: -row[1])[: self.most]

    def nearby(self) -> Nearby:
        """The result over all rows that were compared."""
        if self.is_alone:
            return Nearby(None, ())
        beaten = not self.best or (self.has_zero and self.best[0][1] < 0)
        return Nearby(0.0 if beaten else self.best[0][1], tuple(self.best))


class Nominated:
    """Tells which of many vectors may be those that some vectors resemble most.

    Of them it keeps a float32 product with each of these, 4 bytes. A product is off by less than
    half of `BAND`, so that those with the n greatest cosines, and all as similar as any of them,
    are among those whose product is within the band of the n-th greatest.

    Args:
        vectors: float32, shape (n, dimensions), unit or zero rows.
    """

    def __init__(self, vectors: Float32s) -> None:
        self._vectors = vectors
        self._products: list[Float32s] = []

    def add(self, part: Float32s) -> None:
        """Compare them with more vectors: float32, shape (rows, dimensions), unit or zero rows."""
        self._products.append(self._vectors @ part.T)

    def nearest(self, number: int, most: int) -> Int64s:
        """The rows of those that may be the `most` that a vector resembles most, ascending.

        Args:
            number: of the vector, from 0.
            most: at least 1.
        """
        products = np.concatenate(
            [np.empty(0, np.float32), *(own[number] for own in self._products)]
        )
        if len(products) <= most:
            return np.arange(len(products))
        least = np.partition(products, len(products) - most)[len(products) - most]
        return np.flatnonzero(products >= least - BAND)


class Distinct:
    """Takes each vector whose cosine to every one taken before is below a bound.

    See `reaching`. A zero vector is like no other.

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
        """Decide which of the next vectors are taken.

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
            for at, tile in enumerate(self._tiles):
                taken_before = tile[: self._taken - at * _COLUMNS]
                rows = rows[~reaching(taken_before, block[rows], self._bound).any(axis=0)]
            rows = rows[self._unlike_earlier(block[rows])]
            self._keep(block[rows])
            taken[first + rows] = True
        return taken

    def _keep(self, vectors: Float32s) -> None:
        for vector in vectors:
            at = self._taken % _COLUMNS
            if not at:
                self._tiles.append(np.empty((_COLUMNS, len(vector)), dtype=np.float32))
            self._tiles[-1][at] = vector
            self._taken += 1

    def _unlike_earlier(self, vectors: Float32s) -> Bools:
        """Which vectors are unlike all earlier ones of these that are chosen."""
        alike = np.triu(reaching(vectors, vectors, self._bound), 1)
        chosen = np.ones(len(vectors), dtype=np.bool_)
        for row in range(len(vectors)):
            if chosen[row]:
                chosen &= ~alike[row]
        return chosen


def reaching(left: Float32s, right: Float32s, bound: float) -> Bools:
    """Which pairs have a cosine of at least a bound, or are equal and not zero.

    Equal vectors are alike whatever the bound, though rounding may leave their cosine below 1. A
    matrix product decides where it is farther from the bound than it can be off; where that leaves
    many pairs, one in float64 does, and of those that remain `vectors.cosines`.

    Args:
        left: float32, shape (n, dimensions), unit or zero rows.
        right: float32, shape (m, dimensions), likewise.
        bound: above 0, at most 1.

    Returns:
        bool, shape (n, m).
    """
    product = left @ right.T
    alike = product >= np.float32(bound) - BAND
    near = np.flatnonzero(alike)
    near = near[product.flat[near] <= np.float32(bound) + BAND]
    if len(near) * PAIRS_OF_A_COSINE > alike.size:
        exact = (left.astype(np.float64) @ right.astype(np.float64).T).flat[near]
        alike.flat[near] = exact >= bound
        near = near[(np.abs(exact - bound) <= NARROW_BAND) | (exact >= 1 - BAND)]
    for start in range(0, len(near), _PAIRS):
        pairs = near[start : start + _PAIRS]
        row, column = np.divmod(pairs, len(right))
        first, second = left[row], right[column]
        equal = (first == second).all(axis=1) & first.any(axis=1)
        alike.flat[pairs] = (cosines(first, second) >= bound) | equal
    return alike
