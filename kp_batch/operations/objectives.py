"""Reads again what some scored traces were to do: the archive alone holds their texts."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kp_batch.archive.reading import read_raw
from kp_batch.archive.sources import described, holds
from kp_batch.operations.results import Unread

_LENGTH = 200  # characters
# Ten files of this size, each read twice, are 5 GiB: a minute of a disk or a network.
_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Place:
    """Where the archive held a trace."""

    trace_id: str
    source_file: str
    file_id: str  # the content of the file
    row: int | None  # null: it is not known any more what stands where in that content


@dataclass(frozen=True)
class Objective:
    """What a trace was to do, as far as it can be read again."""

    start: str | None
    unread: Unread | None


def objectives(places: Iterable[Place]) -> dict[str, Objective]:
    """Read the objectives of some traces, by trace_id.

    Args:
        places: few, since every file is read whole that is not too large; the places in one file
            have the same file_id.
    """

    def file(place: Place) -> str:
        return place.source_file

    return {
        trace_id: objective
        for path, in_file in groupby(sorted(places, key=file), key=file)
        for trace_id, objective in _in_file(path, list(in_file))
    }


def _in_file(path: str, places: list[Place]) -> Iterator[tuple[str, Objective]]:
    rows = sorted({place.row for place in places if place.row is not None})
    found: dict[int, str] = {}
    unread: Unread = "changed"
    try:
        source = described(path)
        if source.size > _MOST_BYTES:
            unread = "large"
        elif holds(source, places[0].file_id):
            found = dict(read_raw(source, rows))
    except FileNotFoundError:
        unread = "gone"
    except Exception:  # noqa: BLE001 (file systems raise errors of many kinds)
        unread = "unreadable"
    for place in places:
        text = None if place.row is None else found.get(place.row)
        objective = Objective(None, unread) if text is None else Objective(_start(text), None)
        yield place.trace_id, objective


def _start(trace: str) -> str:
    """The start of a trace's objective, from its JSON."""
    given: Any = json.loads(trace)
    return str(given["task"]["objective"])[:_LENGTH]
