"""What single traces met, by the cache itself: the reference that the replay must equal."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kp_batch.embedding.store import VectorStore
from kp_batch.novelty.cache import VectorCache
from kp_batch.planning.changes import Archive
from kp_batch.planning.scorer import NO_ENCODER, cache_of
from kp_batch.progress import Progress
from kp_batch.vectors import NO_NEIGHBOUR, novelty
from kp_batch.warehouse.layout import Layout


class Meeting:
    """Replays one trace at a time.

    Args:
        warehouse: the folder of the tables.
        archive: the published timeline, sampled.
        fresh: vectors that were made again, by encoder and text hash.
    """

    def __init__(
        self, warehouse: Path, archive: Archive, fresh: dict[tuple[str, str], Any]
    ) -> None:
        """No store is opened before it is needed."""
        self._warehouse, self._archive, self._fresh = warehouse, archive, fresh
        self._stores: dict[str, VectorStore] = {}

    def again(self, row: dict[str, Any], shown: Progress) -> tuple[Any, ...]:
        """What the trace met: the columns of `NOVELTY`, and how far its stored vector is off."""
        shown.add(1)
        encoder_id = row["encoder_id"]
        if encoder_id == NO_ENCODER:
            return (NO_NEIGHBOUR, None, None, None, 0, 0.0)
        size, ttl = cache_of(row["cache_id"])
        window = self._archive.window(row["position"] - size, row["position"])
        hashes = [*window.get_column("text_hash"), row["text_hash_now"]]
        vectors = self._store(encoder_id).gather(pl.Series(hashes, dtype=pl.String))
        moments = [*window.get_column("created_at"), row["created_at_now"]]
        if not np.isfinite(vectors).all() or moments != sorted(moments):
            return (np.nan, np.nan, None, None, len(window), np.inf)
        cache = VectorCache(size, vectors.shape[1], ttl)
        for vector, moment in zip(vectors[:-1], moments[:-1], strict=True):
            cache.add(vector, moment)
        nearest = cache.nearest(vectors[-1], moments[-1])
        fresh = self._fresh.get((encoder_id, row["text_hash_now"]))
        off = 0.0 if fresh is None else float(np.abs(fresh - vectors[-1]).max())
        if nearest is None:
            return (NO_NEIGHBOUR, None, None, None, cache.size, off)
        value = float(novelty(nearest.similarity))
        if nearest.position is None or nearest.added_at is None:
            return (value, nearest.similarity, None, None, cache.size, off)
        name = window.item(nearest.position, "trace_id")
        age = (moments[-1] - nearest.added_at).total_seconds()
        return (value, nearest.similarity, name, age, cache.size, off)

    def _store(self, encoder_id: str) -> VectorStore:
        if encoder_id not in self._stores:
            self._stores[encoder_id] = VectorStore(Layout(self._warehouse).vectors(encoder_id))
        return self._stores[encoder_id]
