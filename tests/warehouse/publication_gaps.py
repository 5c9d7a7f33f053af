"""Stops whoever publishes in a gap of the publication, to be killed there."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from unittest.mock import patch

from kp_batch.warehouse import catalog

BUILDING = "while kp.duckdb.new is built"
BEFORE = "before manifest.json is replaced"
BETWEEN = "before kp.duckdb is replaced"
AFTER = "after kp.duckdb is replaced"
GAPS = (BUILDING, BEFORE, BETWEEN, AFTER)


class Killed(BaseException):
    """As SIGKILL: nothing that follows is done."""


def die() -> None:
    raise Killed


def hold() -> None:
    """Say so, and wait to be killed by who reads it."""
    print("ready", flush=True)  # noqa: T201
    sys.stdin.read()


@contextmanager
def stopping(gap: str, stop: Callable[[], object], publication: int = 1) -> Generator[None]:
    """Call `stop` in a gap of one of the publications that follow; the first is 1."""
    numbers = count(1)
    catalog_id, replace = catalog.catalog_id, Path.replace

    def reach(place: str) -> None:
        if place == gap and next(numbers) == publication:
            stop()

    def building() -> str:
        reach(BUILDING)
        return catalog_id()

    def replacing(path: Path, target: Path) -> Path:
        reach(f"before {target.name} is replaced")
        replaced = replace(path, target)
        reach(f"after {target.name} is replaced")
        return replaced

    with (
        patch.object(catalog, "catalog_id", building),
        patch.object(Path, "replace", replacing),
    ):
        yield
