"""What a published trace met in the cache when it came."""

from dataclasses import dataclass
from pathlib import Path

from kp_batch.errors import WarehouseError
from kp_batch.novelty.nearest import Nearby
from kp_batch.novelty.settings import CacheSettings
from kp_batch.operations.cache_window import Caches, Moment, stored_vectors
from kp_batch.operations.explained import Held, Row
from kp_batch.planning.scorer import NO_FINGERPRINT
from kp_batch.planning.state import State
from kp_batch.text import shortened

_NEIGHBOURS = 5
_ID = 80  # characters


@dataclass(frozen=True)
class Met:
    """What the cache held when a trace came, and what of it the trace resembles.

    Attributes:
        held: what it held; None without an encoder.
        nearest: the most similar first: a row of cache_window.sql and its similarity.
        unmet: why there are none, or why they are not those that it met; None if they are.
    """

    held: Held | None
    nearest: tuple[tuple[Row, float], ...]
    unmet: str | None


def meet(warehouse: Path, state: State, row: Row) -> Met:
    """Find again what a trace met, by stored vectors.

    Args:
        warehouse: the folder of the tables.
        state: what is published.
        row: the trace's, of `scores`.
    """
    if row["encoder_id"] == NO_FINGERPRINT:
        return Met(None, (), "it was scored without an encoder: every novelty is 0.5")
    settings = CacheSettings.of(row["cache_id"])
    moment = Moment(row["created_at"], row["trace_id"])
    caches = Caches(warehouse, state, row["encoder_id"], settings, moment)
    [window] = caches.of({row["cache_group"]}).values()
    own = stored_vectors(warehouse, state, row["encoder_id"], [row["text_hash"]])
    if not own:
        return Met(window.held(), (), _lost(row))
    try:
        [nearby] = window.nearby(list(own.values()), _NEIGHBOURS)
    except WarehouseError:  # one that it met is missing
        return Met(window.held(), (), _lost(row))
    rows = caches.rows([nearby])
    nearest = tuple((rows[position], similarity) for position, similarity in nearby.nearest)
    return Met(window.held(), nearest, _unmet(row, nearby))


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
