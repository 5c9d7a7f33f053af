"""Gives the memory of a computation back to the system."""

import ctypes
from collections.abc import Callable
from functools import cache


def release_heap() -> None:
    """Give free memory of this process's heaps back, if the C library can.

    No two batches of a model have the same size: glibc finds little room for one in what an earlier
    one left, and keeps both, separately for each thread. A call takes 2 ms.
    """
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    return getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
