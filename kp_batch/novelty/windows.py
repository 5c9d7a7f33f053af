"""Which earlier traces each trace meets in the cache: a contiguous run of them, its window."""

from datetime import timedelta

import numpy as np

from kp_batch.vectors import Int64s


def window_starts(times: Int64s, max_elements: int, ttl: timedelta | None) -> Int64s:
    """The first row of each row's window: row i meets rows `[start_i, i)`.

    Formula: `max(i - max_elements, first j with times[j] > times[i] - ttl)`.

    Args:
        times: int64, shape (n,), microseconds, ascending.
        max_elements: the cache's capacity, at least 1.
        ttl: the cache's time to live, None for no limit.

    Returns:
        int64, shape (n,), ascending.
    """
    rows = np.arange(len(times), dtype=np.int64)
    starts = np.maximum(rows - max_elements, 0)
    age = None if ttl is None else ttl // timedelta(microseconds=1)
    # A ttl beyond the whole history expires nothing, and might not fit into an int64.
    if age is not None and len(times) and age <= int(times[-1]) - int(times[0]):
        starts = np.maximum(starts, np.searchsorted(times, times - age, side="right"))
    return np.minimum(starts, rows)
