"""What a session has scored, in the order in which it came, so that a trace can come once more.

A cell of a notebook is run again and again. So a trace whose id is still in its cache takes its own
place: it meets those that were before it, and is met by those after it. For that as many traces
stay as two caches hold: those of the cache, and those that the oldest of them met.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain

from kp_batch.novelty.cache_settings import CacheSettings
from kp_batch.vectors import Float32s

Group = tuple[str | None, ...]  # the values that tell one cache from others


@dataclass(frozen=True, eq=False)
class Entry:
    """A trace that came."""

    place: int  # among all of its session, whichever their caches; below 0: before it
    created_at: datetime  # when it came, in UTC
    trace_id: str  # empty: none, so that it is like no other
    task_domain: str
    text_hash: str
    vector: Float32s  # a unit or a zero vector
    group: Group  # whose cache it came into


Known = Mapping[str, Entry]  # the traces of a session that have ids


@dataclass(frozen=True)
class LiveCache:
    """A first-in-first-out cache at any of the moments since a session began.

    Attributes:
        settings: its size and time to live.
        before: what it held when the session began, the oldest first; one more, if there was one,
            since the session may replace one.
        came: what came since; at most twice the size.
    """

    settings: CacheSettings
    before: Sequence[Entry] = ()
    came: list[Entry] = field(default_factory=list[Entry])

    @property
    def newest(self) -> datetime | None:
        """When the last trace before the session came; None if there was none."""
        return self.before[-1].created_at if self.before else None

    def held(self, place: int, time: datetime, trace_id: str, known: Known) -> list[Entry]:
        """What it held when the trace of a place came, the oldest first, without that trace.

        Args:
            place: of the trace, or that of the next one.
            time: when the trace came.
            trace_id: of the trace; empty: it has none.
            known: by id; a trace from before is not there once its id came again, maybe elsewhere.
        """
        earlier = self.came[: bisect_left(self.came, place, key=_place)]
        entries, ids = list[Entry](), {trace_id} - {""}
        for entry in chain(reversed(earlier), reversed(self.before)):
            if len(entries) == self.settings.size or self._has_expired(entry, time):
                break
            again = known.get(entry.trace_id, entry)
            if entry.trace_id not in ids and (again is entry or again.place > place):
                entries.append(entry)
            ids |= {entry.trace_id} - {""}
        return entries[::-1]

    def _has_expired(self, entry: Entry, time: datetime) -> bool:
        return self.settings.ttl is not None and time - entry.created_at >= self.settings.ttl

    def has(self, entry: Entry) -> bool:
        """Whether it holds a trace now, so that it may come once more."""
        return any(entry is each for each in self.came[-self.settings.size :])

    def add(self, entry: Entry) -> list[Entry]:
        """Add a trace at its place; returns those that no trace of the cache can have met."""
        insort(self.came, entry, key=_place)
        gone = self.came[: -2 * self.settings.size]
        del self.came[: -2 * self.settings.size]
        return gone


def _place(entry: Entry) -> int:
    return entry.place
