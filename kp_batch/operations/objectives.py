"""Reads again what some scored traces were to do."""

from collections.abc import Iterable
from dataclasses import dataclass

from kp_batch.ingest.reread import Place, reread
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
    return {
        place.trace_id: Objective(None, read)
        if isinstance(read, str)
        else Objective(str(read["task"]["objective"])[:_LENGTH], None)
        for place, read in reread(places, most_bytes=_MOST_BYTES)
    }
