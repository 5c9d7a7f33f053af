"""Reads again what some scored traces were to do."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kp_batch.ingest.again import read_again
from kp_batch.unread import Unread

_LENGTH = 200  # characters
# Ten files of this size are 2.5 GiB: half a minute of a disk or a network.
_MOST_BYTES = 256 << 20


class Place(NamedTuple):
    """A scored trace, and where the archive held it; see `again.Placed`."""

    source_file: str
    row: int
    trace_id: str
    content_hash: str


@dataclass(frozen=True)
class Objective:
    """What a trace was to do, as far as it can be read again."""

    start: str | None
    unread: Unread | None


def objectives(places: Iterable[Place]) -> dict[str, Objective]:
    """Read the objectives of some traces, by trace_id.

    Args:
        places: few, since every file is read that is not too large.
    """
    found: dict[str, Objective] = {}

    def unread(place: Place, why: Unread) -> None:
        found[place.trace_id] = Objective(None, why)

    for batch in read_again(sorted(places), unread, most_bytes=_MOST_BYTES):
        for place, trace in batch:
            found[place.trace_id] = Objective(str(trace["task"]["objective"])[:_LENGTH], None)
    return found
