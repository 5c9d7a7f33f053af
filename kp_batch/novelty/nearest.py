"""The vectors of a cache that one vector resembles most, in their order."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kp_batch.vectors import Float32s, cosines, nonzero


@dataclass(frozen=True)
class Nearby:
    """What a vector resembles."""

    max_similarity: float | None  # as `VectorCache.max_cosine_similarity` has it
    nearest: tuple[tuple[int, float], ...]  # row and cosine; the oldest first of equal ones


def most_similar(
    vector: Float32s, parts: Iterable[Float32s], most: int, without: int | None = None
) -> Nearby:
    """Find what a cache holds that resembles a vector most.

    Cosines are those of `VectorCache`, to the bit: `cosines` decides. A zero vector is nobody's
    nearest, and none is nearest to it; its similarity to any other is 0.

    Args:
        vector: float32, shape (dimensions,), a unit or a zero vector.
        parts: what the cache holds, the oldest first, some rows at a time: float32, shape
            (rows, dimensions), unit or zero rows.
        most: how many are listed at the most.
        without: a row that counts as if the cache did not hold it, from 0 over all parts.
    """
    best: list[tuple[int, float]] = []
    first, met, met_zero = 0, 0, not vector.any()
    for part in parts:
        held = np.ones(len(part), dtype=np.bool_)
        if without is not None and first <= without < first + len(part):
            held[without - first] = False
        real = nonzero(part) & held & vector.any()
        similarities = cosines(np.broadcast_to(vector, part.shape), part)
        rows = np.flatnonzero(real)
        chosen = rows[np.argsort(-similarities[rows], kind="stable")[:most]]
        found = [(first + int(row), float(similarities[row])) for row in chosen]
        best = sorted([*best, *found], key=lambda each: -each[1])[:most]
        first, met = first + len(part), met + int(held.sum())
        met_zero |= bool((held & ~real).any())
    if not met:
        return Nearby(None, ())
    if not best or (met_zero and best[0][1] < 0):
        return Nearby(0.0, tuple(best))
    return Nearby(best[0][1], tuple(best))
