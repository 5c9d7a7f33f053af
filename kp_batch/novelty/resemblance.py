"""Finds the most similar vectors of a cache or of many vectors, and the distinct ones of many."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from kp_batch.columns import Rows
from kp_batch.novelty.nearest import Windows, nearest
from kp_batch.vectors import Bools, Float32s, Int64s

BLOCK_ROWS = 512  # vectors decided at once
TILE_ROWS = 2_048  # taken vectors in one array


@dataclass(frozen=True)
class Nearby:
    """The vectors most similar to one."""

    max_similarity: float | None  # see `VectorCache.max_cosine_similarity`
    nearest: tuple[tuple[int, float], ...]  # row and cosine; the oldest first among equals


class Similar(Rows):
    """Traces that are similar to a trace, the most similar first.

    An id is empty if a session scored a trace without an id.
    """

    __slots__ = ()
    names = ("trace_id", "task_domain", "created_at", "similarity", "age_s")


def similar_row(moment: datetime, row: Mapping[str, Any], similarity: float) -> dict[str, Any]:
    """Make a row of `Similar` from a row of `scores`, for a trace of this moment."""
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
    """Find the vectors of a cache that are most similar to each of some vectors.

    Cosines equal `VectorCache`'s to the bit: `cosines` decides. Zero vectors are never nearest, and
    have no nearest vector; their similarity to any other is 0.

    Args:
        vectors: each float32, shape (dimensions,), a unit or a zero vector.
        parts: the cache's vectors, the oldest first, some rows at a time: float32, shape
            (rows, dimensions), unit or zero rows.
        most: how many to list, at most.
        without: for each vector, a row of the cache to ignore; None to ignore none.
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
    """Takes each vector whose cosine to every vector taken before is below a bound.

    Equal vectors are similar with any bound; see `nearest`. A zero vector is similar to none.

    For n vectors, k of which are taken, it needs `O(n * k * dimensions)` multiplications and the
    memory of k vectors.

    Args:
        bound: above 0, at most 1.
    """

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._tiles: list[Float32s] = []  # taken vectors, the last one not full

    def take(self, vectors: Float32s) -> Bools:
        """Decide which of the next vectors are taken.

        Args:
            vectors: float32, shape (n, dimensions), unit or zero rows, with the same dimensions in
                all calls.

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
        """Choose vectors that are unlike all earlier chosen ones.

        It works in rounds: a vector that is unlike all that are left before it is chosen, and one
        that is like any chosen before it is dropped.
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
    """Find which of some vectors are similar to any earlier one; see `nearest`.

    For n vectors that come in parts, and k of them to compare, it needs at most
    `O(n * k * dimensions)` multiplications.

    Args:
        positions: int64, ascending: how many of all vectors come before each one to compare.
        vectors: float32, shape (positions, dimensions), unit or zero rows: the ones to compare.
        parts: all vectors in the order of their positions, from 0 on, some at a time.
        bound: the smallest cosine of similar vectors, above 0 and at most 1.

    Returns:
        bool, shape (positions,).
    """
    windows = Windows(np.zeros(len(positions), np.int64), positions)
    return nearest(vectors, parts, bound=bound, windows=windows).found
