"""The traces of a session in the order in which they came, so that a trace can come again.

A cell of a notebook may run again. Then a trace whose id is still in its cache takes its old place:
it is compared with the traces before it, and those after it are compared with it. So two caches'
worth of traces stay: those in the cache, and those that the oldest of them was compared with.
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
class SessionTrace:
    """A trace of a session."""

    place: int  # among all traces of the session, in any cache; below 0: before the session
    created_at: datetime  # when it came, in UTC
    trace_id: str  # empty: none, so it equals no other
    task_domain: str
    text_hash: str
    vector: Float32s  # a unit or a zero vector
    group: Group  # the group of its cache


Known = Mapping[str, SessionTrace]  # the traces of a session that have ids


@dataclass(frozen=True)
class LiveCache:
    """A first-in-first-out cache at any of the moments since a session began.

    Attributes:
        settings: its size and time to live.
        before: its traces when the session began, the oldest first, and one more,
            because the session may replace one.
        came: the traces since then; at most twice the size.
    """

    settings: CacheSettings
    before: Sequence[SessionTrace] = ()
    came: list[SessionTrace] = field(default_factory=list[SessionTrace])

    @property
    def newest(self) -> datetime | None:
        """The time of the last trace before the session; None if there was none."""
        return self.before[-1].created_at if self.before else None

    def traces_at(
        self, place: int, time: datetime, trace_id: str, known: Known
    ) -> list[SessionTrace]:
        """Return its traces when the trace of a place came, the oldest first, without that trace.

        Args:
            place: the place of the trace, or that of the next one.
            time: the time of the trace.
            trace_id: the id of the trace; empty if it has none.
            known: traces by id. An older trace does not count once its id came again, in any cache.
        """
        earlier = self.came[: bisect_left(self.came, place, key=_place)]
        entries, ids = list[SessionTrace](), {trace_id} - {""}
        for entry in chain(reversed(earlier), reversed(self.before)):
            if len(entries) == self.settings.size or self._has_expired(entry, time):
                break
            again = known.get(entry.trace_id, entry)
            if entry.trace_id not in ids and (again is entry or again.place > place):
                entries.append(entry)
            ids |= {entry.trace_id} - {""}
        return entries[::-1]

    def _has_expired(self, entry: SessionTrace, time: datetime) -> bool:
        return self.settings.ttl is not None and time - entry.created_at >= self.settings.ttl

    def has(self, entry: SessionTrace) -> bool:
        """Whether it holds a trace now."""
        return any(entry is each for each in self.came[-self.settings.size :])

    def add(self, entry: SessionTrace) -> list[SessionTrace]:
        """Add a trace at its place, and return the traces that are no longer needed."""
        insort(self.came, entry, key=_place)
        gone = self.came[: -2 * self.settings.size]
        del self.came[: -2 * self.settings.size]
        return gone


def _place(entry: SessionTrace) -> int:
    return entry.place
