"""Finds equal vectors."""

from collections.abc import Iterator

import numpy as np

from kp_batch.vectors import Float32s, Int64s

_ROWS = 4_096  # compared at once, since what is compared is copied


def previous_equal(vectors: Float32s) -> Int64s:
    """The latest earlier row with an equal vector, -1 where there is none.

    Rows are grouped by a 64-bit hash, and neighbours within a group are compared. A collision can
    only hide an equal row, which costs time, never correctness.

    Args:
        vectors: float32, shape (n, dimensions).

    Returns:
        int64, shape (n,).
    """
    factors = np.random.default_rng(0).integers(0, 2**64, vectors.shape[1], dtype=np.uint64)
    hashes = np.empty(len(vectors), dtype=np.uint64)
    for part in _parts(len(vectors)):
        words = np.ascontiguousarray(vectors[part] + 0.0).view(np.uint32)  # + 0.0: -0.0 equals 0.0
        hashes[part] = np.einsum("ij,j->i", words, factors | np.uint64(1))
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
