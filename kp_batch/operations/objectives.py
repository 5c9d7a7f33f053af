"""Reads again what some scored traces were to do."""

from collections.abc import Iterable
from dataclasses import dataclass

from kp_batch.ingest.again import Place, read_again
from kp_batch.unread import Unread

_LENGTH = 200  # characters
# Ten files of this size are 2.5 GiB: half a minute of a disk or a network.
_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Objective:
    """What a trace was to do, as far as it can be read again."""

    start: str | None
    unread: Unread | None


def objectives(places: Iterable[Place]) -> dict[str, Objective]:
    """Read the objectives of some traces, by trace_id.

    Args:
        places: in the order of their files, in each by row; few, since every file is read that is
            not too large.
    """
    found: dict[str, Objective] = {}

    def unread(place: Place, why: Unread) -> None:
        found[place.trace_id] = Objective(None, why)

    for batch in read_again(places, unread, most_bytes=_MOST_BYTES):
        for place, trace in batch:
            found[place.trace_id] = Objective(str(trace["task"]["objective"])[:_LENGTH], None)
    return found
