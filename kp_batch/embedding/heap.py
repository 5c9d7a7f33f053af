"""Gives the memory of a computation back to the system."""

import ctypes
from collections.abc import Callable
from functools import cache


def release_heap() -> None:
    """Give back what the heaps of this process have free, where the C library can.

    Batches of a model are never of one size twice: glibc finds little room for one in what an
    earlier one has left, and keeps both, for each thread by itself. To look through takes 2 ms.
    """
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    return getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
