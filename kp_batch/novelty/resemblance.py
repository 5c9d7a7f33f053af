"""The vectors that some vectors resemble most, of a cache or of many, and the distinct of many."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from kp_batch.columns import Rows
from kp_batch.novelty.nearest import Windows, nearest
from kp_batch.vectors import Bools, Float32s, Int64s

BLOCK_ROWS = 512  # vectors that are decided at once
TILE_ROWS = 2_048  # vectors that were taken, in one array


@dataclass(frozen=True)
class Nearby:
    """The vectors that a vector resembles most."""

    max_similarity: float | None  # as `VectorCache.max_cosine_similarity` has it
    nearest: tuple[tuple[int, float], ...]  # row and cosine; the oldest first of equal ones


class Similar(Rows):
    """Traces that another one resembles, the most similar first.

    An id is empty where a session scored a trace that has none.
    """

    __slots__ = ()
    names = ("trace_id", "task_domain", "created_at", "similarity", "age_s")


def similar_row(moment: datetime, row: Mapping[str, Any], similarity: float) -> dict[str, Any]:
    """The row of `Similar` for a row of `scores`, whose trace is similar to one of a moment."""
    return {
        "trace_id": row["trace_id"],
        "task_domain": row["task_domain"],
        "created_at": row["created_at"].isoformat(),
        "similarity": similarity,
        "age_s": (moment - row["created_at"]).total_seconds(),
    }


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
    if not vectors:
        return []
    left_out = [-1 if row is None else row - first for row in without or [None] * len(vectors)]
    windows = Windows.all(len(vectors), np.array(left_out, dtype=np.int64))
    found = nearest(np.stack(vectors), parts, most, windows=windows)
    return [
        Nearby(
            None if np.isnan(similarity) else float(similarity),
            tuple((first + int(row), float(cosine)) for row, cosine in rows if row >= 0),
        )
        for similarity, rows in zip(
            found.max_similarity, map(zip, found.columns, found.cosines), strict=True
        )
    ]


class Distinct:
    """Takes each vector whose cosine to every one taken before is below a bound.

    Equal vectors are alike whatever the bound; see `nearest`. A zero vector is like no other.

    Of n vectors, k of which are taken, it needs `O(n * k * dimensions)` multiplications and the
    memory of k vectors.

    Args:
        bound: above 0, at most 1.
    """

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._tiles: list[Float32s] = []  # of vectors that were taken, the last one not full

    def take(self, vectors: Float32s) -> Bools:
        """Decide which of the next vectors are taken.

        Args:
            vectors: float32, shape (n, dimensions), unit or zero rows, each time of the same
                dimensions.

        Returns:
            bool, shape (n,).
        """
        taken = np.zeros(len(vectors), dtype=np.bool_)
        for start in range(0, len(vectors), BLOCK_ROWS):
            block = vectors[start : start + BLOCK_ROWS]
            rows = np.flatnonzero(~nearest(block, self._tiles, bound=self._bound).found)
            rows = rows[self._unlike_earlier(block[rows])]
            self._keep(block[rows])
            taken[start + rows] = True
        return taken

    def _keep(self, vectors: Float32s) -> None:
        if self._tiles and len(self._tiles[-1]) + len(vectors) <= TILE_ROWS:
            vectors = np.concatenate([self._tiles.pop(), vectors])
        self._tiles.append(vectors)

    def _unlike_earlier(self, vectors: Float32s) -> Bools:
        """Which vectors are unlike all earlier ones of these that are chosen.

        In rounds: what is unlike all that is left before it is chosen, and what is like any chosen
        before it is not.
        """
        chosen, left = np.zeros(len(vectors), dtype=np.bool_), np.arange(len(vectors))
        while left.size:
            own = vectors[left]
            is_new = ~resemble_earlier(np.arange(len(left)), own, [own], self._bound)
            new, rest = left[is_new], left[~is_new]
            chosen[new] = True
            before = np.searchsorted(new, rest)
            left = rest[~resemble_earlier(before, vectors[rest], [vectors[new]], self._bound)]
        return chosen


def resemble_earlier(
    positions: Int64s, vectors: Float32s, parts: Iterable[Float32s], bound: float
) -> Bools:
    """Find which of some vectors resemble any that came before them; see `nearest`.

    Of n vectors that come in parts, and k of them that are compared, it needs at the most
    `O(n * k * dimensions)` multiplications.

    Args:
        positions: int64, ascending: how many of all vectors came before each that is compared.
        vectors: float32, shape (positions, dimensions), unit or zero rows: these.
        parts: all vectors in the order of their positions, from 0 on, some at a time.
        bound: the least cosine of those that resemble each other, above 0 and at most 1.

    Returns:
        bool, shape (positions,).
    """
    windows = Windows(np.zeros(len(positions), np.int64), positions)
    return nearest(vectors, parts, bound=bound, windows=windows).found
