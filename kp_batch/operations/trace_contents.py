"""Reads again what some traces hold, and puts two of them beside each other."""

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from kp_batch.archive.formats.json_values import rows_from_objects
from kp_batch.archive.validation import reasons
from kp_batch.facts import with_facts
from kp_batch.ingest.again import Place, Trace, find_places, read_again
from kp_batch.operations.explained import Row, Step
from kp_batch.operations.shared_text import Pieces, shared_pieces
from kp_batch.planning.state import State
from kp_batch.unread import Unread

_CONTENT = 200  # characters of a step
_TEXT, _BEFORE = 600, 100  # characters that stand beside others, and of these what both have
_MOST_BYTES = 256 << 20  # of the file of a trace that another one is explained by
_PLACED = ("trace_id", "source_file", "content_hash")


@dataclass(frozen=True)
class Content:
    """What a trace holds, as far as it can be read again."""

    row: int | None = None  # of its file
    facts: Row | None = None  # the columns of `with_facts`
    unread: Unread | None = None

    @property
    def steps(self) -> tuple[Step, ...] | None:
        """Its steps in short."""
        if self.facts is None:
            return None
        columns = (self.facts[each] for each in ("step_types", "step_tools", "step_contents"))
        return tuple(
            Step(kind, tool, (content or "")[:_CONTENT])
            for kind, tool, content in zip(*columns, strict=True)
        )


def read_contents(state: State, trace: Row, others: Iterable[Row]) -> dict[str, Content]:
    """Read a trace again, by trace_id, and others, these from files that are not too large.

    Args:
        state: what is published.
        trace: its row of `scores`.
        others: theirs.
    """
    rows = [trace, *others]
    wanted = pl.DataFrame([{name: row[name] for name in _PLACED} for row in rows])
    state.connection.register("wanted", wanted.to_arrow())
    places = find_places(state.connection, "wanted", "published.files", "published.facts")
    state.connection.unregister("wanted")
    own = [each for each in places if each.trace_id == trace["trace_id"]]
    rest = [each for each in places if each.trace_id != trace["trace_id"]]
    return _contents(own, None) | _contents(rest, _MOST_BYTES)


def _contents(places: Iterable[Place], most_bytes: int | None) -> dict[str, Content]:
    contents: dict[str, Content] = {}

    def unread(place: Place, why: Unread) -> None:
        contents[place.trace_id] = Content(unread=why)

    for batch in read_again(places, unread, most_bytes=most_bytes):
        for place, trace in batch:
            contents[place.trace_id] = Content(place.row, _facts(trace))
    return contents


def _facts(trace: Trace) -> Row:
    return with_facts(rows_from_objects("", [(0, trace)]), reasons()).row(0, named=True)


def beside(own: Content, other: Content) -> tuple[Pieces | None, Pieces | None]:
    """Their texts, from shortly before where they begin to differ; None where one is unread."""
    if own.facts is None or other.facts is None:
        return None, None
    texts = own.facts["text"], other.facts["text"]
    signs = enumerate(zip(*texts, strict=False))
    differ = next((place for place, (left, right) in signs if left != right), min(map(len, texts)))
    first = max(differ - _BEFORE, 0)
    if first:  # not within a word, where there are words
        first = texts[0].find(" ", first, differ) + 1 or first
    return shared_pieces(*(each[first : first + _TEXT] for each in texts))
