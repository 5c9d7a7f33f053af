"""Does some work for many objects at once."""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

_OBJECTS = 16  # that are on their way

T = TypeVar("T")


def at_once(work: Callable[[T], object], parts: Iterable[T]) -> None:
    """Do some work for many objects at once; after an error, no further one is begun."""
    with ThreadPoolExecutor(_OBJECTS) as pool:
        begun = [pool.submit(work, part) for part in parts]
        try:
            wait(begun, return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(cancel_futures=True)
        for each in begun:  # those that are cancelled stand after the one that failed
            each.result()
