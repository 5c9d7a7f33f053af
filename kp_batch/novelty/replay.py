"""Replays the cache's history as a banded matrix product: every trace's novelty at its time.

Each trace is added and the cache is first in, first out. So trace i is compared with a contiguous
range of the traces before it, its window. A block of traces needs one product with the rows of all
their windows.

See `nearest` for the search. A change here that changes a result raises
`settings.REPLAY_VERSION`.
"""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from kp_batch.arguments import typed
from kp_batch.novelty.cache import novelty
from kp_batch.novelty.nearest import Windows, nearest
from kp_batch.vectors import Bools, Float32s, Float64s, Int64s, is_unit

_FOREVER = 1 << 62  # microseconds; a time that much earlier still fits into an int64


@dataclass(frozen=True)
class Replay:
    """The nearest cached trace of each trace. All arrays have one element per trace."""

    max_similarity: Float64s  # NaN where the cache was empty
    nearest: Int64s  # row of the nearest trace; -1 where there is none
    cached_vectors: Int64s  # vectors in the cache

    @property
    def novelty(self) -> Float64s:
        """Novelty of each trace at its own time; see `cache.novelty`."""
        return novelty(self.max_similarity)


@typed
def replay(
    vectors: Float32s,
    times: npt.ArrayLike,
    *,
    max_elements: int = 1_000,
    ttl: timedelta | None = None,
) -> Replay:
    """Compute what `VectorCache` returns if the traces come one at a time.

    The result equals the cache's, bit for bit. To replay a part of a history, begin `max_elements`
    rows earlier, and drop these rows from the result.

    Args:
        vectors: float32, shape (n, dimensions), unit or zero rows, in replay order.
        times: shape (n,), ascending; integers are microseconds, a datetime64 has its own unit.
        max_elements: as for `VectorCache`.
        ttl: as for `VectorCache`.

    Raises:
        ValueError: lengths differ, times descend or have another type, a row is neither unit nor
            zero, or `max_elements` or `ttl` is not positive.

    Returns:
        `max_similarity`, `nearest` (a row, -1 for none), `cached_vectors` and `novelty`, each of
        shape (n,).

    Examples:
        >>> import numpy as np
        >>> vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float32)
        >>> times = np.array([0, 60_000_000, 120_000_000])
        >>> kp.replay(vectors, times).novelty.round(6)
        array([0.5, 1. , 0.2])
    """
    instants = _microseconds(times)
    if (instants[1:] < instants[:-1]).any():
        raise ValueError("times must ascend; sort the traces by (created_at, id)")
    if max_elements < 1 or (ttl is not None and ttl <= timedelta(0)):
        raise ValueError("max_elements and ttl must be positive")
    return replay_windows(vectors, window_starts(instants, max_elements, ttl))


def _microseconds(times: npt.ArrayLike) -> Int64s:
    """Return times as int64 in microseconds; finer ones are truncated.

    Raises:
        ValueError: the times have another type, or one is missing or too large.
    """
    own = np.asarray(times)
    if own.ndim != 1 or (own.dtype.kind not in "iuM" and own.size):
        raise ValueError(
            "times must be one row of whole numbers, which are microseconds, or of datetime64, got "
            f"{own.dtype} of shape {own.shape}; convert them, as by .astype('datetime64[us]')"
        )
    if own.dtype.kind == "M":
        if np.isnat(own).any():
            raise ValueError(f"the time of row {int(np.isnat(own).argmax())} is missing; drop it")
        own = own.astype("datetime64[us]")
    elif own.size and own.max() > np.iinfo(np.int64).max:
        raise ValueError(f"a time is {own.max()}, too large for microseconds in int64")
    return own.astype(np.int64)


def replay_windows(
    vectors: Float32s,
    starts: Int64s,
    *,
    first: int = 0,
    wanted: Bools | None = None,
) -> Replay:
    """Find the nearest trace to each one within its window; see `replay`.

    Args:
        vectors: float32, shape (n, dimensions), unit or zero rows, in replay order.
        starts: int64, shape (n,), ascending: the window of row i is `[starts[i], i)`.
        first: the first row of the result; earlier rows only appear in windows.
        wanted: bool, shape (n,): only these rows need a result, others may have any; None for
            all.

    Raises:
        ValueError: the shapes differ, or a row is neither unit nor zero.
    """
    _check(vectors, starts)
    rows = np.arange(len(starts), dtype=np.int64)
    own = rows >= first if wanted is None else wanted & (rows >= first)
    found = nearest(vectors, [vectors], windows=Windows(starts, rows, wanted=own))
    similarity, columns = found.max_similarity, found.columns[:, 0]
    is_beaten = similarity != found.cosines[:, 0]  # by the 0 of a zero vector, never nearest
    return Replay(similarity[first:], np.where(is_beaten, -1, columns)[first:], found.met[first:])


def nested_similarities(vectors: Float32s, starts: Int64s, *, first: int = 0) -> Float64s:
    """Return the greatest similarity to each trace within several windows; see `replay_windows`.

    All windows of a trace end before it. So a wide one is the next narrower one, and what lies
    before that: together they cost one replay with the widest.

    Args:
        vectors: float32, shape (n, dimensions), unit or zero rows, in replay order.
        starts: int64, shape (kinds, n), each row ascending: where the windows of each kind begin.
        first: the first row of the result; earlier rows only appear in windows.

    Returns:
        float64, shape (kinds, n - first): as `Replay.max_similarity`.

    Raises:
        ValueError: the shapes differ, or a row is neither unit nor zero.
    """
    _check(vectors, starts[0])
    end = np.arange(starts.shape[1], dtype=np.int64)
    wanted = end >= first
    narrowest_first = np.argsort(-starts, axis=0, kind="stable")
    within, similarities = None, list[Float64s]()
    for start in np.take_along_axis(starts, narrowest_first, axis=0):
        beyond = nearest(vectors, [vectors], windows=Windows(start, end, wanted=wanted))
        within = beyond if within is None else within.joined(beyond)
        similarities.append(within.max_similarity)
        end = start
    result = np.empty(starts.shape)
    np.put_along_axis(result, narrowest_first, np.array(similarities), axis=0)
    return result[:, first:]


def _check(vectors: Float32s, starts: Int64s) -> None:
    if vectors.ndim != 2 or vectors.dtype != np.float32 or len(vectors) != len(starts):
        raise ValueError(
            f"vectors must be float32 of shape ({len(starts)}, dimensions), "
            f"got {vectors.dtype} of shape {vectors.shape}"
        )
    odd = ~is_unit(vectors)
    if odd.any():
        raise ValueError(
            f"row {int(odd.argmax())} is neither a unit nor a zero vector; normalise the vectors"
        )


def window_starts(
    times: Int64s, max_elements: int, ttl: timedelta | None, first: Int64s | int = 0
) -> Int64s:
    """Return the first row of each row's window: the window of row i is `[start_i, i)`.

    Formula: `max(i - max_elements, first_i, first j with times[j] > times[i] - ttl)`.

    Args:
        times: int64, shape (n,), microseconds, ascending from `first_i` to i.
        max_elements: the cache's capacity, at least 0.
        ttl: the cache's time to live; None for no limit.
        first: int64, shape (n,): the first row that each window may have, at most the row itself.

    Returns:
        int64, shape (n,), ascending where `first` does.
    """
    rows = np.arange(len(times), dtype=np.int64)
    low = np.maximum(rows - max_elements, first)
    if ttl is None:
        return low
    expired = times - min(ttl // timedelta(microseconds=1), _FOREVER)
    high = rows.copy()
    while (open_ := np.flatnonzero(low < high)).size:  # a binary search of all rows at once
        middle = (low[open_] + high[open_]) // 2
        is_expired = times[middle] <= expired[open_]
        low[open_[is_expired]] = middle[is_expired] + 1
        high[open_[~is_expired]] = middle[~is_expired]
    return low
