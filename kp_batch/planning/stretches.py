"""Marks the rows of a timeline stretch by stretch, so that memory does not grow with it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kp_batch.planning.windows import breaks, taking_part, window_changed
from kp_batch.vectors import Bools, Int64s


@dataclass(frozen=True)
class Stretch:
    """Rows `first` to `last` (excluded) of a timeline; `begin` to `end` are looked at for them."""

    begin: int
    first: int
    last: int
    end: int

    @property
    def inside(self) -> slice:
        """Which of the rows that are looked at are its own."""
        return slice(self.first - self.begin, self.last - self.begin)


def stretches(rows: int, reach: int, limit: int) -> Iterator[Stretch]:
    """Cut a timeline into stretches.

    Whether a row takes part in the replay depends on the next `reach` rows, whether one of these is
    replayed on the `reach` rows before it, and where a window begins on as many again.

    Args:
        rows: of the timeline.
        reach: the most rows that a window has, now or before.
        limit: the length of a stretch, unless `reach` is greater.
    """
    length = max(limit, reach)
    for first in range(0, rows, length):
        last = min(first + length, rows)
        yield Stretch(max(first - 2 * reach - 1, 0), first, last, min(last + reach, rows))


@dataclass(frozen=True)
class LookedAt:
    """The rows that are looked at for a stretch. All arrays have shape (end - begin,)."""

    starts: Int64s  # the first of these rows that each one meets
    old_position: Int64s  # see `window_changed`
    old_size: Int64s  # likewise
    same_cache: Bools  # likewise
    stale: Bools  # whether it is replayed, whatever it meets


@dataclass(frozen=True)
class Marked:
    """What is to be done with the rows of a stretch."""

    replay: Bools  # shape (last - first,)
    takes_part: Bools  # likewise; whether it is replayed, or met by one that is
    start: Int64s  # of those that take part: the first one that it meets, counted among them all


class Marker:
    """Marks the stretches of one timeline, which are given in their order."""

    def __init__(self) -> None:
        self._first_break: int | None = None
        self._taken = 0  # rows before the stretch that take part

    def mark(self, stretch: Stretch, rows: LookedAt) -> Marked:
        """Mark the next stretch."""
        replay = rows.stale | self._changed(stretch, rows)
        takes_part = taking_part(replay, rows.starts)
        count = np.cumsum(takes_part)
        before = stretch.inside.start
        place = self._taken + count - (count[before - 1] if before else 0) - 1
        own = takes_part[stretch.inside]
        self._taken += int(own.sum())
        start = np.maximum(place[rows.starts], 0)[stretch.inside][own]
        return Marked(replay[stretch.inside], own, start)

    def _changed(self, stretch: Stretch, rows: LookedAt) -> Bools:
        """Which rows meet others than before: none ahead of the timeline's first break."""
        broken = breaks(rows.old_position)
        broken[:1] &= stretch.begin == 0  # its predecessor is not looked at, and so far back no row
        if self._first_break is None and broken.any():
            self._first_break = stretch.begin + int(broken.argmax())
        if self._first_break is None:
            return np.zeros(len(broken), dtype=np.bool_)
        changed = window_changed(
            rows.starts, rows.old_position, rows.old_size, broken, same_cache=rows.same_cache
        )
        changed[: max(self._first_break - stretch.begin, 0)] = False
        return changed
