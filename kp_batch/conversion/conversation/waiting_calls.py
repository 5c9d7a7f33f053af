"""Calls that were recorded once, and are expected again: in a tool's run, or in a message."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property

from kp_batch.conversion.conversation.messages import ALIKE, ToolCall


class WaitingCalls:
    """Calls in their order, each of which is taken once.

    Thousands may wait at once. A call of the same id, or with the same arguments, is found without
    comparing the others.
    """

    def __init__(self) -> None:
        self._calls: list[ToolCall | None] = []  # None for a taken call
        self._waiting = 0

    def add(self, call: ToolCall) -> None:
        """Add a waiting call."""
        self._calls.append(call)
        self._waiting += 1

    def take(
        self, call: ToolCall, least: int, is_answered: Callable[[ToolCall], bool] = lambda _: False
    ) -> ToolCall | None:
        """Remove and return the most likely same call, the first of several; None if there is none.

        Args:
            call: the call that was recorded again.
            least: minimal likeness; see `ToolCall.likeness`.
            is_answered: whether a call already has its result. Such calls come last, and for them
                the name alone is not enough.
        """
        if not self._waiting:
            return None
        place = next(self._by_id.of(call), None) if call.id else None
        if place is None and next(self._by_name.of(call), None) is not None:
            place = self._best(self._by_arguments, call, least, is_answered)
            if place is None:
                place = self._best(self._by_name, call, least, is_answered)
        if place is None:
            return None
        taken, self._calls[place] = self._calls[place], None
        self._waiting -= 1
        return taken

    @cached_property
    def _by_id(self) -> "_Index":
        return _Index(self._calls, lambda call: call.id)

    @cached_property
    def _by_name(self) -> "_Index":
        return _Index(self._calls, lambda call: call.name)

    @cached_property
    def _by_arguments(self) -> "_Index":
        return _Index(self._calls, lambda call: (call.name, call.given.key))

    def _best(
        self, index: "_Index", call: ToolCall, least: int, is_answered: Callable[[ToolCall], bool]
    ) -> int | None:
        best, found = (0, False), None
        for place in index.of(call):
            if not (other := self._calls[place]):
                continue
            rank = call.likeness(other), not is_answered(other)
            if rank[0] >= (least if rank[1] else ALIKE) and rank > best:
                best, found = rank, place
                if rank[0] >= ALIKE and rank[1]:
                    break  # calls with the same arguments were compared before
        return found


class _Index:
    """The places of waiting calls, by a key; a call's key is only computed at a search."""

    def __init__(
        self, calls: Sequence[ToolCall | None], key: Callable[[ToolCall], Hashable]
    ) -> None:
        self._calls, self._key, self._seen = calls, key, 0
        self._places = defaultdict[Hashable, deque[int]](deque)

    def of(self, call: ToolCall) -> Iterator[int]:
        """Yield the places of calls with the same key."""
        for place in range(self._seen, len(self._calls)):
            if other := self._calls[place]:
                self._places[self._key(other)].append(place)
        self._seen = len(self._calls)
        places = self._places.get(self._key(call), ())
        while places and not self._calls[places[0]]:
            places.popleft()
        return (place for place in places if self._calls[place])
