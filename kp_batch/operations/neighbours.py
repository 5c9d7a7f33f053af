"""The nearest traces in the cache of a published trace, and what their texts have in common."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain
from typing import Any

import polars as pl

from kp_batch.archive.file_formats.json import rows_from_objects
from kp_batch.archive.validation import reasons
from kp_batch.columns import Rows
from kp_batch.errors import Unread, WarehouseError
from kp_batch.ingest.reread import find_locations, reread
from kp_batch.novelty.cache_settings import CacheSettings
from kp_batch.novelty.resemblance import Nearby, Similar, similar_row
from kp_batch.operations.warehouse_cache import CacheContents, Caches, Moment, stored_vectors
from kp_batch.planning.scorer import NO_FINGERPRINT
from kp_batch.rendering import Spans, TextSpan
from kp_batch.scoring.facts import with_facts
from kp_batch.text import shortened
from kp_batch.warehouse.open_snapshot import OpenSnapshot

_NEIGHBOURS = 5
_ID = 80  # characters
_CONTENT = 200  # characters of a step
_TEXT, _BEFORE = 600, 100  # characters of a text to compare, and of these before the difference
_MOST_BYTES = 256 << 20  # of the file of a trace that another one is explained by
_LOCATED_BY = ("trace_id", "source_file", "content_hash")
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]+")
_FEWEST = 2  # words of what counts as shared

Row = Mapping[str, Any]  # by column


@dataclass(frozen=True)
class StepSummary:
    """A step in short."""

    type: str
    tool: str | None
    content: str  # its start


@dataclass(frozen=True)
class TraceContent:
    """The content of a trace, if it can be read again."""

    row: int | None = None  # of its file
    facts: Row | None = None  # the columns of `with_facts`
    unread: Unread | None = None

    @property
    def steps(self) -> tuple[StepSummary, ...] | None:
        """The steps in short."""
        if self.facts is None:
            return None
        columns = (self.facts[name] for name in ("step_types", "step_tools", "step_contents"))
        return tuple(
            StepSummary(kind, tool, (content or "")[:_CONTENT])
            for kind, tool, content in zip(*columns, strict=True)
        )


class TracesMet(Rows):
    """The nearest traces in a trace's cache, the most similar first, and what is shared."""

    __slots__ = ()
    names = (*Similar.names, "is_same_text", "text", "own_text", "unread")


@dataclass(frozen=True)
class CacheHits:
    """The cache of a trace when it came, and the nearest traces in it.

    Attributes:
        contents: the contents of the cache; None without an encoder.
        nearest: rows of cache_window.sql with their similarity, the most similar first.
        caveat: why there are none, or why they differ from those of the run; else None.
    """

    contents: CacheContents | None
    nearest: tuple[tuple[Row, float], ...]
    caveat: str | None


def cache_hits(snapshot: OpenSnapshot, row: Row) -> CacheHits:
    """Find the neighbours of a row of `scores` again, from stored vectors."""
    if row["encoder_id"] == NO_FINGERPRINT:
        return CacheHits(None, (), "it was scored without an encoder: every novelty is 0.5")
    settings = CacheSettings.of(row["cache_id"])
    moment = Moment(row["created_at"], row["trace_id"])
    caches = Caches(snapshot, row["encoder_id"], settings, moment)
    [window] = caches.of({row["cache_group"]}).values()
    contents = window.contents()
    lacking = CacheHits(contents, (), _without_vectors(row))
    own = stored_vectors(snapshot, row["encoder_id"], [row["text_hash"]])
    if not own:
        return lacking
    try:
        [nearby] = window.nearby(list(own.values()), _NEIGHBOURS)
    except WarehouseError:  # one of the cache is missing
        return lacking
    rows = caches.rows([nearby])
    nearest = tuple((rows[position], similarity) for position, similarity in nearby.nearest)
    return CacheHits(contents, nearest, _caveat(row, nearby))


def met_row(
    row: Row, other: Row, similarity: float, own: TraceContent, content: TraceContent
) -> dict[str, Any]:
    """Return the row of `TracesMet` for two traces, from their rows of `scores` and contents."""
    own_text, text = diff_contents(own, content)
    return {
        **similar_row(row["created_at"], other, similarity),
        "is_same_text": other["text_hash"] == row["text_hash"],
        "text": text,
        "own_text": own_text,
        "unread": content.unread or own.unread,
    }


def _without_vectors(row: Row) -> str:
    lost = "the vectors are not stored any more; a run that replays it makes them again"
    if row["nearest_trace_id"] is None:
        return lost
    nearest = shortened(row["nearest_trace_id"], _ID)
    return f"{lost}. Its nearest was {nearest}, by {row['max_similarity']:.4f}"


def _caveat(row: Row, nearby: Nearby) -> str | None:
    was = row["max_similarity"]
    if nearby.max_similarity is None and was is None:
        return "the cache was empty: novelty is 0.5"
    if nearby.max_similarity != was:
        similarity = "" if was is None else f", when the greatest similarity was {was:.4f}"
        return f"what came before it has changed since it was scored{similarity}"
    if not nearby.nearest or row["nearest_trace_id"] is None:
        return "its vector, or one in its cache, is zero: the similarity of a zero vector is 0"
    return None


def read_contents(
    snapshot: OpenSnapshot, trace: Row, others: Iterable[Row]
) -> dict[str, TraceContent]:
    """Read a trace and others again, by trace_id; the others only from files of limited size."""
    traces = pl.DataFrame([{name: row[name] for name in _LOCATED_BY} for row in (trace, *others)])
    snapshot.connection.register("traces", traces.to_arrow())
    locations = find_locations(snapshot.connection, "traces", "published.files", "published.facts")
    snapshot.connection.unregister("traces")
    own = [location for location in locations if location.trace_id == trace["trace_id"]]
    rest = [location for location in locations if location.trace_id != trace["trace_id"]]
    contents: dict[str, TraceContent] = {}
    for location, content in chain(reread(own), reread(rest, most_bytes=_MOST_BYTES)):
        if isinstance(content, str):
            contents[location.trace_id] = TraceContent(unread=content)
        else:
            facts = with_facts(rows_from_objects("", [(0, content)]), reasons())
            contents[location.trace_id] = TraceContent(location.row, facts.row(0, named=True))
    return contents


def diff_contents(own: TraceContent, other: TraceContent) -> tuple[Spans | None, Spans | None]:
    """Return both texts, from shortly before their first difference; None if one is unread."""
    if own.facts is None or other.facts is None:
        return None, None
    texts = own.facts["text"], other.facts["text"]
    pairs = enumerate(zip(*texts, strict=False))
    differ = next((index for index, (left, right) in pairs if left != right), min(map(len, texts)))
    first = max(differ - _BEFORE, 0)
    if first:  # not within a word, where there are words
        first = texts[0].find(" ", first, differ) + 1 or first
    return diff_texts(*(text[first : first + _TEXT] for text in texts))


def diff_texts(left: str, right: str) -> tuple[Spans, Spans]:
    """Split two texts into what they share, in the same order, and what only one has.

    The joined spans of a text are the text. The worst time is proportional to the product of the
    lengths, so texts should be short.
    """
    texts = _TOKEN.findall(left), _TOKEN.findall(right)
    blocks = [
        block
        for block in SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks()
        if sum(token.isalnum() for token in texts[0][block.a : block.a + block.size]) >= _FEWEST
    ]
    return (
        tuple(_spans(texts[0], [(block.a, block.a + block.size) for block in blocks])),
        tuple(_spans(texts[1], [(block.b, block.b + block.size) for block in blocks])),
    )


def _spans(tokens: Sequence[str], shared: Sequence[tuple[int, int]]) -> Iterator[TextSpan]:
    done = 0
    for first, last in [*shared, (len(tokens), len(tokens))]:
        if done < first:
            yield TextSpan("".join(tokens[done:first]), shared=False)
        if first < last:
            yield TextSpan("".join(tokens[first:last]), shared=True)
        done = last
