"""Finds equal vectors."""

from collections.abc import Iterator

import numpy as np

from kp_batch.vectors import Float32s, Int64s

_ROWS = 512  # looked at once, since they are copied: 512 x 384 float64 stay in a core's cache


def previous_equal(vectors: Float32s) -> Int64s:
    """The latest earlier row with an equal vector, -1 where there is none.

    Rows are grouped by their float64 product with one random vector, and neighbours within a group
    are compared. A collision can only hide an equal row, which costs time, never correctness.

    Args:
        vectors: float32, shape (n, dimensions).

    Returns:
        int64, shape (n,).
    """
    direction = np.random.default_rng(0).standard_normal(vectors.shape[1])
    hashes = np.empty(len(vectors), dtype=np.float64)
    for part in _parts(len(vectors)):
        # einsum, unlike a matrix product, sums each row in the same order.
        hashes[part] = np.einsum("ij,j->i", vectors[part].astype(np.float64), direction)
    order = np.argsort(hashes, kind="stable")
    grouped = np.flatnonzero(hashes[order[:-1]] == hashes[order[1:]])
    previous = np.full(len(vectors), -1, dtype=np.int64)
    for part in _parts(len(grouped)):
        earlier, later = order[grouped[part]], order[grouped[part] + 1]
        same = (vectors[earlier] == vectors[later]).all(axis=1)
        previous[later[same]] = earlier[same]
    return previous


def _parts(rows: int) -> Iterator[slice]:
    return (slice(start, start + _ROWS) for start in range(0, rows, _ROWS))
