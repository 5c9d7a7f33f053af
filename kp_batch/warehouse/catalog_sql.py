"""The SQL of which a catalog is made: a file for each view, macro and question."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_SQL = files("kp_batch.warehouse").joinpath("sql")


def statements(folder: str) -> Iterator[str]:
    """The statements of a folder, `macros` or `questions`, in the order of their names."""
    for file in _in_order(_SQL.joinpath(folder)):
        yield file.read_text("utf-8")


@cache
def catalog_id() -> str:
    """What tells catalogs of different SQL apart, as another kp_batch makes them."""
    texts = sorted(_texts(_SQL))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def _texts(folder: Traversable) -> Iterator[str]:
    for each in _in_order(folder):
        if each.is_dir():
            yield from _texts(each)
        elif each.name.endswith(".sql"):
            yield each.read_text("utf-8")


def _in_order(folder: Traversable) -> list[Traversable]:
    return sorted(folder.iterdir(), key=lambda each: each.name)
