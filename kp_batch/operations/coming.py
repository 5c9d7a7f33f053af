"""What a new trace meets in the cache of a warehouse, at a moment."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.embedding.encoders import Encoder, load_encoder
from kp_batch.novelty.nearest import Nearby
from kp_batch.novelty.settings import CacheSettings
from kp_batch.operations.cache_window import CacheWindow, Moment, similar, stored_vectors
from kp_batch.operations.explained import Similar
from kp_batch.operations.score import Meet, Met, meet_nobody
from kp_batch.planning.state import State
from kp_batch.run import last_config
from kp_batch.scoring.profiles import ProfileVersions
from kp_batch.staging import Staging
from kp_batch.vectors import Float32s, unit
from kp_batch.warehouse.manifest import require_manifest

_NEIGHBOURS = 5


@contextmanager
def coming(
    warehouse: Path, folder: Path, moment: datetime
) -> Generator[tuple[ProfileVersions, Meet]]:
    """Give the weights of a warehouse, and what traces meet that come to it.

    Args:
        warehouse: the folder of the tables, of which nothing is changed.
        folder: takes what does not fit into memory.
        moment: when the traces come; with a time zone.

    Raises:
        WarehouseError: it is no warehouse, or nothing was scored there yet.
        EncoderError: the model cannot be found.
    """
    tables, config = require_manifest(warehouse).tables, last_config(warehouse)
    with State(warehouse, tables, Staging(folder)) as state:
        yield config.profiles, Coming(warehouse, state, config, moment).meet


class Coming:
    """Meets the cache of a warehouse as if each trace came next, and changes nothing.

    A trace that would come after all others of its moment gets the novelty that a run would give
    it, were it in the archive. If the warehouse has one of its id, that one counts as replaced.

    Args:
        warehouse: the folder of the tables.
        state: what is published.
        config: the settings in force.
        moment: when the traces come; with a time zone.

    Raises:
        EncoderError: the model cannot be found.
    """

    def __init__(
        self, warehouse: Path, state: State, config: RescoreConfig, moment: datetime
    ) -> None:
        self._warehouse, self._state, self._moment = warehouse, state, moment
        self._size = config.cache_size
        self._encoder = load_encoder(config.embedder, config.precision)
        if self._encoder:
            one_more = CacheSettings(config.cache_size + 1, config.ttl)  # for one that is replaced
            encoder_id = self._encoder.encoder_id
            self._window = CacheWindow(warehouse, state, encoder_id, one_more, Moment(moment))

    def meet(self, facts: pl.DataFrame) -> list[Met]:
        """What each trace meets; see `score.Meet`.

        Raises:
            WarehouseError: vectors are missing.
        """
        if self._encoder is None:
            return meet_nobody(facts)
        replaced = self._replaced(facts.get_column("trace_id"))
        met = self._window.nearby(self._vectors(self._encoder, facts), _NEIGHBOURS, replaced)
        rows = self._window.rows(met)
        return [(each.max_similarity, tuple(self._similar(each, rows))) for each in met]

    def _replaced(self, trace_ids: pl.Series) -> list[int | None]:
        """The row that each trace does not meet: of its own id, else the oldest if gone."""
        gone = 0 if self._window.size > self._size else None
        held = self._window.positions(trace_ids)
        return [held.get(each, gone) for each in trace_ids]

    def _similar(self, nearby: Nearby, rows: Mapping[int, Mapping[str, Any]]) -> Iterator[Similar]:
        for position, similarity in nearby.nearest:
            yield Similar(**similar(rows[position], similarity, self._moment))

    def _vectors(self, encoder: Encoder, facts: pl.DataFrame) -> list[Float32s]:
        """The vectors of the traces; those that are stored are not made again."""
        hashes = facts.get_column("text_hash").to_list()
        found = stored_vectors(self._warehouse, self._state, encoder.encoder_id, hashes)
        missing = facts.filter(~pl.col("text_hash").is_in(list(found))).unique("text_hash")
        if not missing.is_empty():
            made = unit(encoder.encode(missing.get_column("text").to_list()))
            found |= dict(zip(missing.get_column("text_hash"), made, strict=True))
        return [found[each] for each in hashes]
