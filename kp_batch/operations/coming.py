"""What a new trace meets in the cache of its group in a warehouse, at a moment."""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.embedding.encoders import Encoder, load_encoder
from kp_batch.errors import KpBatchError
from kp_batch.novelty.nearest import Nearby
from kp_batch.novelty.settings import CACHE_COLUMNS, CacheSettings, format_cache_by
from kp_batch.operations.cache_window import (
    Caches,
    CacheWindow,
    Moment,
    similar,
    stored_vectors,
)
from kp_batch.operations.explained import Similar
from kp_batch.operations.score import Meet, Met, meet_nobody
from kp_batch.planning.cache_groups import groups_of
from kp_batch.planning.state import State
from kp_batch.run import last_config
from kp_batch.scoring.profiles import ProfileVersions
from kp_batch.staging import Staging
from kp_batch.vectors import Float32s, unit
from kp_batch.warehouse.manifest import require_manifest

_NEIGHBOURS = 5


@contextmanager
def coming(
    warehouse: Path, moment: datetime, group: Mapping[str, str | None]
) -> Generator[tuple[ProfileVersions, Meet]]:
    """Give the weights of a warehouse, and what traces meet that come to it.

    Args:
        warehouse: the folder of the tables, of which nothing is changed.
        moment: when the traces come; with a time zone.
        group: values that tell their caches apart, in place of their own; None for a missing one.

    Raises:
        WarehouseError: it is no warehouse, or nothing was scored there yet.
        KpBatchError: a value tells no caches apart, or one is missing that no trace tells.
        EncoderError: the model cannot be found.
    """
    tables, config = require_manifest(warehouse).tables, last_config(warehouse)
    _check(group, config.cache_by)
    with (
        Staging.temporary() as staging,
        State(warehouse, tables, staging) as state,
    ):
        yield config.profiles, Coming(warehouse, state, config, moment, group).meet


class Coming:
    """Meets the caches of a warehouse as if each trace came next, and changes nothing.

    A trace that would come after all others of its moment gets the novelty that a run would give
    it, were it in the archive. If the warehouse has one of its id, that one counts as replaced.

    Args:
        warehouse: the folder of the tables.
        state: what is published.
        config: the settings in force.
        moment: when the traces come; with a time zone.
        group: see `coming`.

    Raises:
        EncoderError: the model cannot be found.
    """

    def __init__(
        self,
        warehouse: Path,
        state: State,
        config: RescoreConfig,
        moment: datetime,
        group: Mapping[str, str | None],
    ) -> None:
        self._warehouse, self._state, self._moment = warehouse, state, moment
        self._size, self._cache_by, self._group = config.cache_size, config.cache_by, group
        self._encoder = load_encoder(config.embedder, config.precision)
        if self._encoder:
            one_more = CacheSettings(config.cache_size + 1, config.ttl)  # for one that is replaced
            encoder_id = self._encoder.encoder_id
            self._caches = Caches(warehouse, state, encoder_id, one_more, Moment(moment))
        self._windows: dict[str | None, CacheWindow] = {}

    def meet(self, facts: pl.DataFrame) -> list[Met]:
        """What each trace meets; see `score.Meet`.

        Raises:
            WarehouseError: vectors are missing.
        """
        if self._encoder is None:
            return meet_nobody(facts)
        groups = self._groups(facts)
        if not self._windows.keys() >= {*groups}:
            self._windows = self._caches.of({*groups})
        vectors = self._vectors(self._encoder, facts)
        replaced = [*self._replaced(groups, facts.get_column("trace_id"))]
        nearby: dict[int, Nearby] = {}
        for group in {*groups}:
            rows = [row for row, each in enumerate(groups) if each == group]
            own = ([vectors[row] for row in rows], _NEIGHBOURS, [replaced[row] for row in rows])
            nearby |= zip(rows, self._windows[group].nearby(*own), strict=True)
        similar_to = self._caches.rows([*nearby.values()])
        return [
            (each.max_similarity, tuple(self._similar(each, similar_to)))
            for _, each in sorted(nearby.items())
        ]

    def _groups(self, facts: pl.DataFrame) -> list[str | None]:
        """The group of each trace, by what is given of it and else by its own values."""
        given = {name: pl.lit(value, pl.String) for name, value in self._group.items()}
        rows = facts.select(CACHE_COLUMNS).with_columns(
            *(given.get(name, pl.col(name)).alias(name) for name in CACHE_COLUMNS),
            path_keys=pl.lit(json.dumps(self._group)),
        )
        return groups_of(self._state, rows, self._cache_by).to_list()

    def _replaced(self, groups: Sequence[str | None], trace_ids: pl.Series) -> Iterator[int | None]:
        """The row that each trace does not meet: of its own id, else the oldest if gone."""
        positions = self._caches.positions(trace_ids)
        for group, trace_id in zip(groups, trace_ids, strict=True):
            span, position = self._windows[group].span, positions.get(trace_id)
            gone = span.start if len(span) > self._size else None
            yield position if position in span else gone

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


def _check(group: Mapping[str, str | None], cache_by: Sequence[str]) -> None:
    """Refuse values that tell no caches apart, and the lack of those that no trace tells."""
    for name in group:
        if name not in cache_by:
            raise KpBatchError(
                f"--group: {name} tells no caches of the warehouse apart; its cache_by is "
                f"{format_cache_by(cache_by)}"
            )
    if missing := [name for name in cache_by if name not in {*CACHE_COLUMNS, *group}]:
        named = " ".join(f"--group {name}=VALUE" for name in missing)
        raise KpBatchError(
            f"the warehouse keeps a cache for each {' and '.join(missing)}, which no trace tells: "
            f"give {named}, empty where there is none"
        )
