"""What a published trace met in the cache when it came."""

from dataclasses import dataclass

from kp_batch.errors import Unread, WarehouseError
from kp_batch.novelty.settings import CacheSettings
from kp_batch.novelty.similar import Nearby, Similar
from kp_batch.operations.explain.texts import Content, Row, TextSpan, diff_contents
from kp_batch.operations.warehouse_cache import CacheContents, Caches, Moment, stored_vectors
from kp_batch.planning.scorer import NO_FINGERPRINT
from kp_batch.planning.snapshot import OpenSnapshot
from kp_batch.text import shortened

_NEIGHBOURS = 5
_ID = 80  # characters


@dataclass(frozen=True)
class Neighbour(Similar):
    """A trace that another one met, and what the two have in common."""

    is_same_text: bool
    text: tuple[TextSpan, ...] | None  # of what was embedded, from where the two begin to differ
    own_text: tuple[TextSpan, ...] | None  # the same of the trace that came
    unread: Unread | None  # why there are no texts


@dataclass(frozen=True)
class CacheHits:
    """What the cache held when a trace came, and what of it the trace resembles.

    Attributes:
        held: what it held; None without an encoder.
        nearest: the most similar first: a row of cache_window.sql and its similarity.
        unmet: why there are none, or why they are not those that it met; None if they are.
    """

    held: CacheContents | None
    nearest: tuple[tuple[Row, float], ...]
    unmet: str | None


def cache_hits(snapshot: OpenSnapshot, row: Row) -> CacheHits:
    """Find again what a trace met, by stored vectors.

    Args:
        snapshot: what is published.
        row: the trace's, of `scores`.
    """
    if row["encoder_id"] == NO_FINGERPRINT:
        return CacheHits(None, (), "it was scored without an encoder: every novelty is 0.5")
    settings = CacheSettings.of(row["cache_id"])
    moment = Moment(row["created_at"], row["trace_id"])
    caches = Caches(snapshot, row["encoder_id"], settings, moment)
    [window] = caches.of({row["cache_group"]}).values()
    own = stored_vectors(snapshot, row["encoder_id"], [row["text_hash"]])
    if not own:
        return CacheHits(window.contents(), (), _lost(row))
    try:
        [nearby] = window.nearby(list(own.values()), _NEIGHBOURS)
    except WarehouseError:  # one that it met is missing
        return CacheHits(window.contents(), (), _lost(row))
    rows = caches.rows([nearby])
    nearest = tuple((rows[position], similarity) for position, similarity in nearby.nearest)
    return CacheHits(window.contents(), nearest, _unmet(row, nearby))


def neighbour(row: Row, other: Row, similarity: float, own: Content, content: Content) -> Neighbour:
    """A trace beside one that it is near to.

    Args:
        row: of the trace that came, of `scores`.
        other: of the near one.
        similarity: the cosine.
        own: what the first one holds.
        content: what the near one holds.
    """
    own_text, text = diff_contents(own, content)
    return Neighbour(
        **vars(Similar.to(row["created_at"], other, similarity)),
        is_same_text=other["text_hash"] == row["text_hash"],
        text=text,
        own_text=own_text,
        unread=content.unread or own.unread,
    )


def _lost(row: Row) -> str:
    lost = "the vectors are not stored any more; a run that replays it makes them anew"
    if row["nearest_trace_id"] is None:
        return lost
    nearest = shortened(row["nearest_trace_id"], _ID)
    return f"{lost}. Its nearest was {nearest}, by {row['max_similarity']:.4f}"


def _unmet(row: Row, nearby: Nearby) -> str | None:
    was = row["max_similarity"]
    if nearby.max_similarity is None and was is None:
        return "the cache was empty: novelty is 0.5"
    if nearby.max_similarity != was:
        similarity = "" if was is None else f", when the greatest similarity was {was:.4f}"
        return f"what came before it has changed since it was scored{similarity}"
    if not nearby.nearest or row["nearest_trace_id"] is None:
        return "its vector, or one that it met, is zero: such a one is similar by 0"
    return None
