"""Replays one trace at a time through VectorCache, to check the blocked replay."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

import numpy as np
import polars as pl

from kp_batch.duck import set_variables, sql
from kp_batch.embedding.vector_store import VectorStore, read_vectors
from kp_batch.novelty.cache import NO_NEIGHBOUR_ROW, VectorCache, novelty
from kp_batch.novelty.settings import CacheSettings
from kp_batch.planning.scorer import NO_FINGERPRINT
from kp_batch.planning.snapshot import OpenSnapshot
from kp_batch.vectors import Float32s
from kp_batch.warehouse.layout import Layout


@dataclass(frozen=True)
class ScoredTrace:
    """What the replay of a published trace needs."""

    encoder_id: str
    cache_id: str
    position: int  # in the timeline, from 0
    first: int  # the position of the first trace of its cache
    text_hash_now: str  # this and the time as the archive has them now
    created_at_now: datetime


@dataclass(frozen=True)
class ReplayedNovelty:
    """What a trace met: the columns of `NOVELTY`, and how far its stored vector is off."""

    novelty: float
    max_similarity: float | None
    nearest_trace_id: str | None
    nearest_age_s: float | None
    cache_size: int
    vector_difference: float  # largest of a component; 0 where it was not embedded again

    @classmethod
    def nobody(cls, vector_difference: float = 0.0) -> Self:
        """What a trace met where the cache was empty, or where there is no encoder."""
        return cls(*NO_NEIGHBOUR_ROW, vector_difference)


class Reference:
    """Replays one trace at a time: slow, and trusted.

    Args:
        snapshot: what is published, with the table timeline of sample.sql.
        fresh: vectors that were embedded again, by encoder_id and text hash.
        traces: what is to be replayed, with the columns of `ScoredTrace`.
    """

    def __init__(
        self,
        snapshot: OpenSnapshot,
        fresh: Mapping[tuple[str, str], Float32s],
        traces: pl.DataFrame,
    ) -> None:
        self._snapshot, self._fresh = snapshot, fresh
        self._traces = traces
        self._places: dict[str, pl.DataFrame] = {}

    def recompute(self, trace: ScoredTrace) -> ReplayedNovelty:
        """Find what a trace meets, by replaying its window."""
        if trace.encoder_id == NO_FINGERPRINT:
            return ReplayedNovelty.nobody()
        settings = CacheSettings.of(trace.cache_id)
        window = self._window(max(trace.position - settings.size, trace.first), trace.position)
        vectors = self._vectors(
            trace.encoder_id, [*window.get_column("text_hash"), trace.text_hash_now]
        )
        moments = [*window.get_column("created_at"), trace.created_at_now]
        if not np.isfinite(vectors).all() or moments != sorted(moments):
            return ReplayedNovelty(np.nan, np.nan, None, None, len(window), np.inf)
        cache = VectorCache(settings.size, vectors.shape[1], settings.ttl)
        for vector, moment in zip(vectors[:-1], moments[:-1], strict=True):
            cache.add(vector, moment)
        nearest = cache.nearest(vectors[-1], moments[-1])
        fresh = self._fresh.get((trace.encoder_id, trace.text_hash_now))
        off = 0.0 if fresh is None else float(np.abs(fresh - vectors[-1]).max())
        if nearest is None:
            return ReplayedNovelty.nobody(off)
        value = float(novelty(nearest.similarity))
        if nearest.position is None or nearest.added_at is None:
            return ReplayedNovelty(value, nearest.similarity, None, None, cache.size, off)
        name = window.item(nearest.position, "trace_id")
        age = (moments[-1] - nearest.added_at).total_seconds()
        return ReplayedNovelty(value, nearest.similarity, name, age, cache.size, off)

    def _window(self, first: int, last: int) -> pl.DataFrame:
        set_variables(self._snapshot.connection, first=first, last=last)
        return self._snapshot.ask(sql(__name__, "window.sql"))

    def _vectors(self, encoder_id: str, text_hashes: list[str]) -> Float32s:
        if encoder_id not in self._places:
            self._places[encoder_id] = self._find(encoder_id)
        rows = pl.DataFrame({"text_hash": text_hashes}, schema={"text_hash": pl.String})
        found = rows.join(
            self._places[encoder_id], on="text_hash", how="left", maintain_order="left"
        )
        return read_vectors(Layout(self._snapshot.warehouse).vectors(encoder_id), found)

    def _find(self, encoder_id: str) -> pl.DataFrame:
        """Find the vectors of all that the traces of an encoder can have met, at once."""
        traces = self._traces.filter(encoder_id=encoder_id)
        reach = max(CacheSettings.of(each).size for each in traces.get_column("cache_id"))
        connection, path = self._snapshot.connection, self._snapshot.staging.vectors
        own = traces.select("position", "first", "text_hash_now")
        connection.register("traces", own.to_arrow())
        set_variables(connection, reach=reach)
        connection.execute(sql(__name__, "met.sql"))
        store = VectorStore(Layout(self._snapshot.warehouse).vectors(encoder_id), connection)
        store.write_places("met", path)
        hashes = self._snapshot.ask("SELECT text_hash FROM met ORDER BY position")
        return pl.concat([hashes, pl.read_parquet(path, glob=False)], how="horizontal")
