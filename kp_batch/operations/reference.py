"""Replays one trace at a time through VectorCache, to check the blocked replay."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kp_batch.embedding.store import VectorStore
from kp_batch.novelty.cache import NO_NEIGHBOUR, VectorCache, novelty
from kp_batch.novelty.settings import CacheSettings
from kp_batch.planning.scorer import NO_FINGERPRINT
from kp_batch.planning.state import State
from kp_batch.warehouse.layout import Layout


@dataclass(frozen=True)
class Met:
    """What a trace met: the columns of `NOVELTY`, and how far its stored vector is off."""

    novelty: float
    max_similarity: float | None
    nearest_trace_id: str | None
    nearest_age_s: float | None
    cache_size: int
    vector_difference: float = 0.0  # largest of a component; 0 where it was not embedded again


class Reference:
    """Replays one trace at a time: slow, and trusted.

    Args:
        warehouse: the folder of the tables.
        state: what is published, with the table timeline of sample.sql.
        fresh: vectors that were embedded again, by encoder and text hash.
    """

    def __init__(self, warehouse: Path, state: State, fresh: dict[tuple[str, str], Any]) -> None:
        self._warehouse, self._state, self._fresh = warehouse, state, fresh
        self._stores: dict[str, VectorStore] = {}

    def recompute(self, row: dict[str, Any]) -> Met:
        """Find what a trace meets, by replaying its window.

        Args:
            row: of the table sampled of sample.sql, with the facts as the archive has them now
                (`text_hash_now`, `created_at_now`).
        """
        encoder_id = row["encoder_id"]
        if encoder_id == NO_FINGERPRINT:
            return Met(NO_NEIGHBOUR, None, None, None, 0)
        settings = CacheSettings.of(row["cache_id"])
        window = self._window(row["position"] - settings.size, row["position"])
        hashes = [*window.get_column("text_hash"), row["text_hash_now"]]
        vectors = self._store(encoder_id).gather(pl.Series(hashes, dtype=pl.String))
        moments = [*window.get_column("created_at"), row["created_at_now"]]
        if not np.isfinite(vectors).all() or moments != sorted(moments):
            return Met(np.nan, np.nan, None, None, len(window), np.inf)
        cache = VectorCache(settings.size, vectors.shape[1], settings.ttl)
        for vector, moment in zip(vectors[:-1], moments[:-1], strict=True):
            cache.add(vector, moment)
        nearest = cache.nearest(vectors[-1], moments[-1])
        fresh = self._fresh.get((encoder_id, row["text_hash_now"]))
        off = 0.0 if fresh is None else float(np.abs(fresh - vectors[-1]).max())
        if nearest is None:
            return Met(NO_NEIGHBOUR, None, None, None, cache.size, off)
        value = float(novelty(nearest.similarity))
        if nearest.position is None or nearest.added_at is None:
            return Met(value, nearest.similarity, None, None, cache.size, off)
        name = window.item(nearest.position, "trace_id")
        age = (moments[-1] - nearest.added_at).total_seconds()
        return Met(value, nearest.similarity, name, age, cache.size, off)

    def _window(self, first: int, last: int) -> pl.DataFrame:
        self._state.connection.execute("SET VARIABLE first = ?", [first])
        self._state.connection.execute("SET VARIABLE last = ?", [last])
        query = files("kp_batch.operations").joinpath("window.sql").read_text("utf-8")
        return self._state.ask(query)

    def _store(self, encoder_id: str) -> VectorStore:
        if encoder_id not in self._stores:
            self._stores[encoder_id] = VectorStore(Layout(self._warehouse).vectors(encoder_id))
        return self._stores[encoder_id]
