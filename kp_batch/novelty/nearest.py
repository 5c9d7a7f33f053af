"""What of a cache some vectors resemble most, in order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

import numpy as np

from kp_batch.vectors import Float32s, cosines, nonzero


@dataclass(frozen=True)
class Nearby:
    """What a vector resembles."""

    max_similarity: float | None  # as `VectorCache.max_cosine_similarity` has it
    nearest: tuple[tuple[int, float], ...]  # row and cosine; the oldest first of equal ones


@dataclass(frozen=True)
class Similar:
    """A trace that the cache held when another one came."""

    trace_id: str
    task_domain: str
    created_at: str  # ISO 8601, UTC
    similarity: float  # the cosine, -1..1
    age_s: float  # how much earlier it was made, seconds

    @classmethod
    def to(cls, moment: datetime, row: Mapping[str, Any], similarity: float) -> Self:
        """The trace of a row of `scores`, similar to one that came at a moment."""
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
    """Find what a cache holds that each of some vectors resembles most.

    Cosines are those of `VectorCache`, to the bit: `cosines` decides. A zero vector is nobody's
    nearest, and none is nearest to it; its similarity to any other is 0.

    Args:
        vectors: each float32, shape (dimensions,), a unit or a zero vector.
        parts: what the cache holds, the oldest first, some rows at a time: float32, shape
            (rows, dimensions), unit or zero rows.
        most: how many are listed at the most.
        without: for each vector a row that counts as if the cache did not hold it; None for none.
        first: the number of the first row.
    """
    left_out = without or [None] * len(vectors)
    met = [_TopK(*each, most) for each in zip(vectors, left_out, strict=True)]
    for part in parts:
        real = nonzero(part)
        for each in met:
            each.meet(part, real, first)
        first += len(part)
    return [each.nearby() for each in met]


@dataclass
class _TopK:
    """What one vector has met of the cache so far."""

    vector: Float32s
    without: int | None
    most: int
    best: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    is_alone: bool = True
    met_zero: bool = False  # or is one itself

    def meet(self, part: Float32s, real: np.ndarray, first: int) -> None:
        """Meet some more rows, of which the first has this number."""
        held = np.ones(len(part), dtype=np.bool_)
        if self.without is not None and first <= self.without < first + len(part):
            held[self.without - first] = False
        self.is_alone &= not held.any()
        comparable = real & held & self.vector.any()
        self.met_zero |= bool((held & ~comparable).any())
        similarities = cosines(np.broadcast_to(self.vector, part.shape), part)
        rows = np.flatnonzero(comparable)
        chosen = rows[np.argsort(-similarities[rows], kind="stable")[: self.most]]
        found = [(first + int(row), float(similarities[row])) for row in chosen]
        self.best = sorted([*self.best, *found], key=lambda each: -each[1])[: self.most]

    def nearby(self) -> Nearby:
        """What it resembles of all that it met."""
        if self.is_alone:
            return Nearby(None, ())
        beaten = not self.best or (self.met_zero and self.best[0][1] < 0)
        return Nearby(0.0 if beaten else self.best[0][1], tuple(self.best))
