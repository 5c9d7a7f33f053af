"""Does some work for many objects at once."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_OBJECTS = 16  # that are on their way

T = TypeVar("T")


def at_once(work: Callable[[T], object], parts: Iterable[T]) -> None:
    """Do some work for many objects at once; after an error, no further one is begun."""
    with ThreadPoolExecutor(_OBJECTS) as pool:
        begun = [pool.submit(work, part) for part in parts]
        try:
            for each in begun:
                each.result()
        finally:
            pool.shutdown(cancel_futures=True)
