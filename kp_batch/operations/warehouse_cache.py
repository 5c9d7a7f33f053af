"""The caches of a warehouse at a moment, and the neighbours of new traces in them."""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, LiteralString, Self

import duckdb
import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.duck import set_variables, sql, statement
from kp_batch.embedding.encoder import Encoder
from kp_batch.embedding.encoders import load_encoder
from kp_batch.embedding.vector_store import VectorStore, read_vectors
from kp_batch.errors import KpBatchError, WarehouseError, explain_fixable
from kp_batch.novelty.cache_settings import CACHE_COLUMNS, CacheSettings, format_cache_by
from kp_batch.novelty.resemblance import Nearby, Similar, most_similar, similar_row
from kp_batch.operations.score import FindNeighbours, Neighbours, no_neighbours
from kp_batch.planning.cache_groups import groups_of, rows_by_group
from kp_batch.runs.run import last_config
from kp_batch.schemas import TABLES
from kp_batch.scoring.profiles import ProfileVersions, load_profiles
from kp_batch.text import format_duration
from kp_batch.vectors import Float32s, unit
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.open_snapshot import OpenSnapshot, open_published, open_snapshot
from kp_batch.warehouse.snapshot import PublishedSnapshot, published
from kp_batch.warehouse.staging import Staging

_NEIGHBOURS = 5
_ROWS = 16_384  # vectors in memory at once
_ROWS_OF_SPAN = "(FROM cache_window WHERE position >= $first AND position < $last)"
_SPANS = """
    SELECT cache_group, min(position), max(position) + 1 FROM cache_window GROUP BY cache_group
"""


@dataclass(frozen=True)
class CacheContents:
    """The contents of a cache when a trace came."""

    size: int  # vectors
    capacity: int
    ttl: str  # such as 7d, or none
    oldest: str | None  # when it was made: ISO 8601, UTC
    newest: str | None
    domains: dict[str, int]  # traces by domain, most first


@dataclass(frozen=True)
class Moment:
    """A position in the order of traces.

    Attributes:
        time: the time, with a time zone.
        before: an id; of the traces of exactly that time, only those with lesser ids came before.
            None for all.
    """

    time: datetime
    before: str | None = None


@dataclass(frozen=True)
class CacheWindow:
    """A cache at a moment: published traces by their positions, the oldest first."""

    snapshot: OpenSnapshot  # its connection has the table cache_window; see `Caches`
    vectors: Path  # the folder of the store
    places: pl.DataFrame  # of the vectors of all caches, by position: `vector_store.PLACES`
    settings: CacheSettings
    span: range  # the positions of its traces

    def contents(self) -> CacheContents:
        """Return its size, settings, span of time and domains."""
        times = self._ask("SELECT min(created_at), max(created_at) FROM $rows")
        oldest, newest = times.row(0)
        domains = self._ask(
            "SELECT task_domain, count(*) FROM $rows GROUP BY ALL ORDER BY 2 DESC, 1"
        )
        return CacheContents(
            size=len(self.span),
            capacity=self.settings.size,
            ttl=format_duration(self.settings.ttl),
            oldest=oldest and oldest.isoformat(),
            newest=newest and newest.isoformat(),
            domains=dict(domains.iter_rows()),
        )

    def nearby(
        self, vectors: Sequence[Float32s], most: int, without: Sequence[int | None] | None = None
    ) -> list[Nearby]:
        """Find the traces most similar to some vectors; see `most_similar`. Reads the cache once.

        Raises:
            WarehouseError: vectors are missing.
        """
        own = self.places.slice(self.span.start, len(self.span))
        parts = (read_vectors(self.vectors, places) for places in own.iter_slices(_ROWS))
        return most_similar(vectors, parts, most, without, self.span.start)

    def load(self) -> tuple[pl.DataFrame, Float32s]:
        """Return its traces, the oldest first: the rows of cache_window.sql, and their vectors.

        Raises:
            WarehouseError: vectors are missing.
        """
        own = self.places.slice(self.span.start, len(self.span))
        return self._ask("FROM $rows ORDER BY position"), read_vectors(self.vectors, own)

    def _ask(self, query: LiteralString) -> pl.DataFrame:
        rows = statement(_ROWS_OF_SPAN, first=self.span.start, last=self.span.stop)
        return self.snapshot.ask(statement(query, rows=rows))


@dataclass(frozen=True)
class Caches:
    """The caches of a warehouse at a moment.

    Attributes:
        snapshot: what is published; its connection gets the table cache_window, see there.
        encoder_id: the encoder of the vectors.
        settings: the settings of each cache.
        moment: the position in the order of traces.
    """

    snapshot: OpenSnapshot
    encoder_id: str
    settings: CacheSettings
    moment: Moment

    def of(self, groups: AbstractSet[str | None]) -> dict[str | None, CacheWindow]:
        """Return the caches of some groups, which are valid until the next call.

        This reads their days and the store's hashes, and keeps some of the vectors in memory. To
        find the days, it counts the groups of all traces by day. If all traces share one cache,
        their group is None, and the table's log has the counts.
        """
        snapshot, connection = self.snapshot, self.snapshot.connection
        set_variables(
            connection,
            moment=self.moment.time,
            before=self.moment.before,
            since=self._since,
            size=self.settings.size,
        )
        rows = pl.DataFrame({"cache_group": list(groups)}, schema={"cache_group": pl.String})
        connection.register("cache_groups", rows.to_arrow())
        scores = snapshot.scores_of(self._days(groups))
        connection.execute(sql(__name__, "cache_window.sql", scores=scores))
        connection.unregister("cache_groups")
        vectors = Layout(snapshot.warehouse).vectors(self.encoder_id)
        VectorStore(vectors, connection).write_places("cache_window", snapshot.staging.vectors)
        places = pl.read_parquet(snapshot.staging.vectors, glob=False)
        spans = {
            group: range(first, last) for group, first, last in snapshot.ask(_SPANS).iter_rows()
        }
        return {
            group: CacheWindow(snapshot, vectors, places, self.settings, spans.get(group, range(0)))
            for group in groups
        }

    def rows(self, nearby: Sequence[Nearby]) -> dict[int, dict[str, Any]]:
        """Return the rows of cache_window.sql that some vectors resemble, by position."""
        wanted = {position for matches in nearby for position, _ in matches.nearest}
        positions = pl.DataFrame({"position": sorted(wanted)}, schema={"position": pl.Int64})
        query = "FROM cache_window SEMI JOIN positions USING (position)"
        rows = self.snapshot.ask(query, positions=positions)
        return {row["position"]: row for row in rows.to_dicts()}

    def positions(self, trace_ids: pl.Series) -> dict[str, int]:
        """Return the positions of traces by id, for those that any cache contains."""
        query = "SELECT trace_id, position FROM cache_window SEMI JOIN ids USING (trace_id)"
        return dict(self.snapshot.ask(query, ids=trace_ids.to_frame("trace_id")).iter_rows())

    @property
    def _since(self) -> datetime | None:
        """The time up to which traces have expired; None if none have."""
        try:
            return self.moment.time - self.settings.ttl if self.settings.ttl else None
        except OverflowError:  # before the year 1
            return None

    def _days(self, groups: AbstractSet[str | None]) -> list[date]:
        """Return the days of the traces in the groups' caches."""
        last = self.moment.time.astimezone(UTC).date()
        first = self._since.astimezone(UTC).date() if self._since else date.min
        if groups == {None}:
            counts = self.snapshot.rows_by_day().with_columns(cache_group=pl.lit(None, pl.String))
        else:
            days = (day for day in self.snapshot.days if first <= day <= last)
            scores = self.snapshot.scores_of(days)
            counts = self.snapshot.ask(rows_by_group(scores, statement("cache_groups")))
        days = counts.filter(pl.col("day").is_between(first, last)).sort("day", descending=True)
        # Some of the last day may be later than the moment.
        rows = pl.when(pl.col("day") < last).then("rows").otherwise(0)
        later = rows.cum_sum().shift(1, fill_value=0).over("cache_group")
        return days.filter(later < self.settings.size).get_column("day").unique().to_list()


def stored_vectors(
    snapshot: OpenSnapshot, encoder_id: str, text_hashes: list[str]
) -> dict[str, Float32s]:
    """Return the stored vectors of some texts, by hash."""
    folder = Layout(snapshot.warehouse).vectors(encoder_id)
    wanted = pl.DataFrame({"text_hash": text_hashes}).unique()
    stored = wanted.hstack(vector_places(snapshot, encoder_id, wanted)).drop_nulls("chunk")
    return dict(zip(stored.get_column("text_hash"), read_vectors(folder, stored), strict=True))


def vector_places(snapshot: OpenSnapshot, encoder_id: str, wanted: pl.DataFrame) -> pl.DataFrame:
    """Return the place of each row's vector, by its `text_hash`; null where none is stored."""
    folder = Layout(snapshot.warehouse).vectors(encoder_id)
    path = snapshot.staging.folder / "stored.parquet"
    rows = wanted.select("text_hash").with_row_index("position")
    snapshot.connection.register("wanted", rows.to_arrow())
    VectorStore(folder, snapshot.connection).write_places("wanted", path)
    snapshot.connection.unregister("wanted")
    return pl.read_parquet(path, glob=False)


def vectors_of(snapshot: OpenSnapshot, encoder: Encoder, facts: pl.DataFrame) -> list[Float32s]:
    """Return the vectors of some traces, and compute only those that are not stored."""
    hashes = facts.get_column("text_hash").to_list()
    known = stored_vectors(snapshot, encoder.encoder_id, hashes)
    missing = facts.filter(~pl.col("text_hash").is_in(list(known))).unique("text_hash")
    if not missing.is_empty():
        new = unit(encoder.encode(missing.get_column("text").to_list()))
        known |= dict(zip(missing.get_column("text_hash"), new, strict=True))
    return [known[digest] for digest in hashes]


@contextmanager
def warehouse_cache(
    warehouse: Path, moment: datetime, group: Mapping[str, str | None]
) -> Generator[tuple[ProfileVersions, FindNeighbours]]:
    """Yield the weights of a warehouse, and a function that finds neighbours in its caches.

    Args:
        warehouse: the folder of the tables, which does not change.
        moment: the time of the traces, with a time zone.
        group: values that choose the caches, instead of the traces' own; None for a missing value.

    Raises:
        WarehouseError: there is no warehouse, or no scores in it.
        KpBatchError: caches do not depend on a value of `group`, or a needed value is not given.
        EncoderError: the model cannot be found.
    """
    config = last_config(warehouse)
    _check_group(group, config.cache_by)
    with open_published(warehouse) as snapshot:
        encoder = load_encoder(config.embedder, config.precision)
        find_neighbours = no_neighbours
        if encoder:
            one_more = CacheSettings(config.cache_size + 1, config.ttl)  # for one that is replaced
            caches = Caches(snapshot, encoder.encoder_id, one_more, Moment(moment))
            cache = WarehouseCache(caches, encoder, config.cache_by, group)
            find_neighbours = cache.neighbours
        yield config.profiles, find_neighbours


@contextmanager
def scoring(
    warehouse: Path | None,
    profiles: ProfileVersions | None,
    moment: datetime,
    group: Mapping[str, str | None],
) -> Generator[tuple[ProfileVersions, FindNeighbours]]:
    """Yield the weights of new traces, and a function that finds their neighbours.

    Args:
        warehouse: see `warehouse_cache`; None for an empty cache.
        profiles: the weights; None for those of the warehouse, or the built-in ones.
        moment: see `warehouse_cache`.
        group: see `warehouse_cache`.
    """
    if warehouse is None:
        yield profiles or load_profiles(), no_neighbours
        return
    with warehouse_cache(warehouse, moment, group) as (own, find_neighbours):
        yield profiles or own, find_neighbours


@dataclass(frozen=True)
class PublishedCaches:
    """The caches of a warehouse at a moment, unchanged by later publications.

    Attributes:
        config: the settings of the warehouse.
        moment: the time, with a time zone.
        group: see `warehouse_cache`.
        snapshot: what is published.
    """

    config: RescoreConfig
    moment: datetime
    group: Mapping[str, str | None]
    snapshot: PublishedSnapshot

    @classmethod
    def of(cls, warehouse: Path, moment: datetime, group: Mapping[str, str | None]) -> Self:
        """Return the caches of what is published now.

        Raises:
            WarehouseError: there is no warehouse, or no scores in it.
            KpBatchError: see `warehouse_cache`.
        """
        config = last_config(warehouse)
        _check_group(group, config.cache_by)
        snapshot = published(warehouse)
        for name in TABLES:  # they are opened now: another warehouse may take its place
            snapshot.files(name)
        return cls(config, moment, group, snapshot)

    def group_values(self, facts: pl.DataFrame) -> tuple[str | None, ...]:
        """Return the values that choose the cache of a trace, which are cheap to compare."""
        own = [name for name in self.config.cache_by if name not in self.group]
        return tuple(facts.item(0, name) for name in own)

    def load(self, facts: pl.DataFrame, encoder_id: str) -> tuple[pl.DataFrame, Float32s]:
        """Return the traces in a trace's cache, and one more, if there is one; see `CacheWindow`.

        Ignores the time to live, which depends on the time of the trace.

        Args:
            facts: one row of `with_facts`.
            encoder_id: the encoder of the vectors.

        Raises:
            WarehouseError: vectors or published files are missing.
        """
        one_more = CacheSettings(self.config.cache_size + 1, None)
        with (
            _explaining_if_gone(self.snapshot),
            Staging.temporary() as staging,
            open_snapshot(self.snapshot, staging) as snapshot,
        ):
            groups = _groups(snapshot, facts, self.config.cache_by, self.group)
            caches = Caches(snapshot, encoder_id, one_more, Moment(self.moment))
            [window] = caches.of({*groups}).values()
            return window.load()


@contextmanager
def _explaining_if_gone(snapshot: PublishedSnapshot) -> Generator[None]:
    """Explain why tables cannot be read any more, since no command does so for a session."""
    try:
        yield
    except (WarehouseError, duckdb.Error) as error:
        fixable = _gone(snapshot) if _are_gone(snapshot) else explain_fixable(error)
        if fixable is None or fixable is error:
            raise
        raise fixable from error


def _gone(snapshot: PublishedSnapshot) -> WarehouseError:
    return WarehouseError(
        f"the tables of this session are gone from {shown(snapshot.warehouse)}: they were moved, "
        "or a vacuum or a forget removed them; make a new session",
        code="file_gone",
    )


def _are_gone(snapshot: PublishedSnapshot) -> bool:
    try:
        return not all(path.exists() for name in TABLES for path in snapshot.files(name))
    except WarehouseError:  # of the table's log
        return True


@dataclass
class WarehouseCache:
    """Find neighbours in the caches of a warehouse as if each trace came next. Changes nothing.

    A trace after all others of its time gets the novelty that a run would give it. It replaces a
    trace of the warehouse with the same id.
    """

    caches: Caches  # when the traces come, with room for one more, which may be replaced
    encoder: Encoder
    cache_by: Sequence[str]
    group: Mapping[str, str | None]  # see `warehouse_cache`
    windows: dict[str | None, CacheWindow] = field(default_factory=dict[str | None, CacheWindow])

    def neighbours(self, facts: pl.DataFrame) -> list[Neighbours]:
        """Return the neighbours of each trace; see `score.FindNeighbours`.

        Raises:
            WarehouseError: vectors are missing.
        """
        groups = _groups(self.caches.snapshot, facts, self.cache_by, self.group)
        if not self.windows.keys() >= {*groups}:
            self.windows = self.caches.of({*groups})
        vectors = vectors_of(self.caches.snapshot, self.encoder, facts)
        replaced = [*self._replaced(groups, facts.get_column("trace_id"))]
        nearby: dict[int, Nearby] = {}
        for group in {*groups}:
            rows = [row for row, own in enumerate(groups) if own == group]
            matches = self.windows[group].nearby(
                [vectors[row] for row in rows], _NEIGHBOURS, [replaced[row] for row in rows]
            )
            nearby |= zip(rows, matches, strict=True)
        similar, moment = self.caches.rows([*nearby.values()]), self.caches.moment.time
        return [
            (
                matches.max_similarity,
                Similar(
                    similar_row(moment, similar[position], similarity)
                    for position, similarity in matches.nearest
                ),
            )
            for _, matches in sorted(nearby.items())
        ]

    def _replaced(self, groups: Sequence[str | None], trace_ids: pl.Series) -> Iterator[int | None]:
        """Yield the row that each trace is not compared with: its id's, or a surplus oldest one."""
        positions = self.caches.positions(trace_ids)
        for group, trace_id in zip(groups, trace_ids, strict=True):
            span, position = self.windows[group].span, positions.get(trace_id)
            gone = span.start if len(span) == self.caches.settings.size else None
            yield position if position in span else gone


def _groups(
    snapshot: OpenSnapshot,
    facts: pl.DataFrame,
    cache_by: Sequence[str],
    group: Mapping[str, str | None],
) -> list[str | None]:
    """Return the group of each trace, by the values of `group`, and otherwise its own."""
    values = {name: pl.lit(value, pl.String) for name, value in group.items()}
    rows = facts.select(CACHE_COLUMNS).with_columns(
        *(values.get(name, pl.col(name)).alias(name) for name in CACHE_COLUMNS),
        path_keys=pl.lit(json.dumps(group)),
    )
    return groups_of(snapshot, rows, cache_by).to_list()


def _check_group(group: Mapping[str, str | None], cache_by: Sequence[str]) -> None:
    """Refuse values that no cache depends on, and missing values that no trace has."""
    for name in group:
        if name not in cache_by:
            raise KpBatchError(
                f"--group: {name} is not in the warehouse's cache_by "
                f"({format_cache_by(cache_by)}); leave it out"
            )
    if missing := [name for name in cache_by if name not in {*CACHE_COLUMNS, *group}]:
        named = " ".join(f"--group {name}=VALUE" for name in missing)
        raise KpBatchError(
            f"the warehouse has a cache for each {' and '.join(missing)}, which the trace lacks; "
            f"give {named}, with an empty VALUE if there is none"
        )
