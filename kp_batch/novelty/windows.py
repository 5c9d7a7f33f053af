"""Which earlier traces each trace meets in the cache: a contiguous run of them, its window."""

from datetime import timedelta

import numpy as np

from kp_batch.vectors import Int64s

_FOREVER = 1 << 62  # microseconds: a time that is as long ago still fits into an int64


def window_starts(
    times: Int64s, max_elements: int, ttl: timedelta | None, first: Int64s | int = 0
) -> Int64s:
    """The first row of each row's window: row i meets rows `[start_i, i)`.

    Formula: `max(i - max_elements, first_i, first j with times[j] > times[i] - ttl)`.

    Args:
        times: int64, shape (n,), microseconds, ascending from `first_i` to i.
        max_elements: the cache's capacity, at least 0.
        ttl: the cache's time to live, None for no limit.
        first: int64, shape (n,), the first row that each row may meet, no later than itself.

    Returns:
        int64, shape (n,), ascending where `first` does.
    """
    rows = np.arange(len(times), dtype=np.int64)
    low = np.maximum(rows - max_elements, first)
    if ttl is None:
        return low
    expired = times - min(ttl // timedelta(microseconds=1), _FOREVER)
    high = rows.copy()
    while (open_ := np.flatnonzero(low < high)).size:  # a search by halves, of all rows at once
        middle = (low[open_] + high[open_]) // 2
        is_expired = times[middle] <= expired[open_]
        low[open_[is_expired]] = middle[is_expired] + 1
        high[open_[~is_expired]] = middle[~is_expired]
    return low
