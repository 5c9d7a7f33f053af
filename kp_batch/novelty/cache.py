"""The live engine's cache of recent vectors, and novelty from a similarity to it.

`VectorCache` is the plain reference; `replay` equals it to the bit.
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from kp_batch.arguments import typed
from kp_batch.text import in_utc
from kp_batch.vectors import Float32s, Float64s, cosines, nonzero, unit

NO_NEIGHBOUR = 0.5  # the novelty if the cache is empty, or the trace has no vector
NO_NEIGHBOUR_ROW = (NO_NEIGHBOUR, None, None, None, 0)  # as in `NOVELTY`


def novelty(max_similarity: npt.ArrayLike) -> Float64s:
    """Return the novelty, from the greatest cosine similarity to the cache.

    Formula: `1 - max_similarity`, clamped to [0, 1]; 0.5 where the similarity is NaN, because the
    cache is empty.

    Args:
        max_similarity: float64 of any shape.

    Returns:
        float64 of the same shape.
    """
    similarity = np.asarray(max_similarity, dtype=np.float64)
    return np.where(np.isnan(similarity), NO_NEIGHBOUR, np.clip(1.0 - similarity, 0.0, 1.0))


@dataclass(frozen=True)
class Nearest:
    """The most similar vector of a cache; a zero vector has the similarity 0 and no position."""

    similarity: float
    position: int | None  # counted from 0 over all vectors ever added; None for a zero vector
    added_at: datetime | None  # None for a zero vector


@typed
class VectorCache:
    """A bounded first-in-first-out cache of vectors, with an optional time to live.

    Times are arguments, must not run backwards, and are in UTC if they have no zone. Vectors are
    stored as float32 unit vectors, so a cosine is a dot product.

    Args:
        max_elements: capacity, at least 1.
        dimensions: the length of every vector.
        ttl: the age at which vectors expire; None: no limit.

    Raises:
        ValueError: max_elements is below 1, or the ttl is not positive.

    Examples:
        >>> from datetime import UTC, datetime, timedelta
        >>> cache = kp.VectorCache(max_elements=2, dimensions=3, ttl=timedelta(days=7))
        >>> monday, tuesday = datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 6, tzinfo=UTC)
    """

    def __init__(
        self, max_elements: int = 1_000, dimensions: int = 384, ttl: timedelta | None = None
    ) -> None:
        if max_elements < 1 or dimensions < 1:
            raise ValueError(
                f"max_elements and dimensions must be at least 1, got {max_elements} and "
                f"{dimensions}"
            )
        if ttl is not None and ttl <= timedelta(0):
            raise ValueError(f"ttl must be positive or None, got {ttl}")
        self.max_elements = int(max_elements)  # a deque takes no integer of NumPy
        self.dimensions = dimensions
        self.ttl = ttl
        self._entries: deque[tuple[datetime, Float32s]] = deque(maxlen=self.max_elements)
        self._added = 0
        self._now: datetime | None = None

    @property
    def size(self) -> int:
        """The number of vectors in the cache.

        Examples:
            >>> cache.size
            0
        """
        return len(self._entries)

    def add(self, vector: npt.ArrayLike, now: datetime) -> None:
        """Add a vector, normalised, at the time `now`; a full cache drops its oldest one.

        Raises:
            ValueError: its length is not `dimensions`, or `now` is before the last time.

        Examples:
            >>> cache.add([1.0, 0.0, 0.0], monday)
        """
        self.evict_expired(now)
        self._entries.append((in_utc(now), self._checked(vector)))
        self._added += 1

    def max_cosine_similarity(
        self, query: npt.ArrayLike, now: datetime | None = None
    ) -> float | None:
        """Return the greatest cosine similarity of `query` to the vectors in the cache at `now`.

        Args:
            query: a vector of length `dimensions`.
            now: the time; None: the last time.

        Returns:
            A number from -1 to 1, within 1e-7; 0 against a zero vector; None if the cache is empty.

        Raises:
            ValueError: as for `add`.

        Examples:
            >>> cache.max_cosine_similarity([0.6, 0.8, 0.0], tuesday)
            0.6000000238418579
        """
        nearest = self.nearest(query, now)
        return nearest.similarity if nearest else None

    def nearest(self, query: npt.ArrayLike, now: datetime | None = None) -> Nearest | None:
        """Return the most similar vector, the oldest on a tie.

        Zero vectors are never nearest, and have no nearest vector. The arguments are those of
        `max_cosine_similarity`.

        Returns:
            Its `similarity`, its `position` among all vectors ever added, from 0, and when it was
            added (`added_at`). None if the cache is empty.

        Examples:
            >>> nearest = cache.nearest([0.6, 0.8, 0.0])
            >>> nearest.position if nearest else None
            0
        """
        vector = self._checked(query)
        if now is not None:
            self.evict_expired(now)
        if not self._entries:
            return None
        cached = np.stack([entry for _, entry in self._entries])
        similarities = cosines(np.broadcast_to(vector, cached.shape), cached)
        real = nonzero(cached) & nonzero(vector)
        best = int(np.argmax(np.where(real, similarities, -np.inf)))
        if not real[best] or (similarities[best] < 0 and not real.all()):
            return Nearest(0.0, None, None)
        first = self._added - len(self._entries)
        return Nearest(float(similarities[best]), first + best, self._entries[best][0])

    def evict_expired(self, now: datetime) -> None:
        """Drop the vectors that are one ttl old or older at `now`.

        Raises:
            ValueError: `now` is before the last time.

        Examples:
            >>> cache.evict_expired(monday + timedelta(days=7))
            >>> cache.size
            0
        """
        moment = in_utc(now)
        if self._now is not None and moment < self._now:
            raise ValueError(f"the clock runs backwards: {moment} after {self._now}")
        self._now = moment
        while self.ttl and self._entries and moment - self._entries[0][0] >= self.ttl:
            self._entries.popleft()

    def clear(self) -> None:
        """Drop every vector and the last time.

        Examples:
            >>> cache.clear()
        """
        self._entries.clear()
        self._now = None

    def _checked(self, vector: npt.ArrayLike) -> Float32s:
        try:
            checked = unit(np.atleast_1d(np.asarray(vector, dtype=np.float64)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"no vector of {self.dimensions} numbers: {error}") from error
        if checked.shape != (self.dimensions,):
            raise ValueError(
                f"a vector of length {checked.size} for a cache of {self.dimensions} dimensions"
            )
        return checked
