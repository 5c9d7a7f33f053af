"""What the caches of a warehouse held at a moment, and what of it a vector resembles."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, LiteralString

import polars as pl

from kp_batch.embedding.chunks import read_vectors
from kp_batch.embedding.store import VectorStore
from kp_batch.novelty.nearest import Nearby, most_similar
from kp_batch.novelty.settings import CacheSettings, format_ttl
from kp_batch.operations.explained import Held
from kp_batch.planning.cache_groups import rows_by_group
from kp_batch.planning.state import State
from kp_batch.sql import set_variables, sql, statement
from kp_batch.vectors import Float32s
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.relations import parquet_relation

_ROWS = 16_384  # vectors held at once
_HELD = "(FROM cache_window WHERE position >= $first AND position < $last)"
_SPANS = """
    SELECT cache_group, min(position), max(position) + 1 FROM cache_window GROUP BY cache_group
"""


@dataclass(frozen=True)
class Moment:
    """When something came to the cache.

    Attributes:
        time: with a time zone.
        before: of the traces of that very time, those had come whose ids are less than this one;
            None: all of them.
    """

    time: datetime
    before: str | None = None


class CacheWindow:
    """What a cache held at a moment: published traces by their positions, the oldest first.

    Args:
        state: its connection has the table cache_window; see `Caches`.
        vectors: the folder of the store.
        places: of the vectors of all caches, by position: `chunks.PLACES`.
        settings: of the cache.
        span: the positions of what it held.
    """

    def __init__(
        self,
        state: State,
        vectors: Path,
        places: pl.DataFrame,
        settings: CacheSettings,
        span: range,
    ) -> None:
        self._state, self._vectors, self._settings = state, vectors, settings
        self._places = places.slice(span.start, len(span))
        self.span = span

    def held(self) -> Held:
        """Tell what it holds."""
        span = self._ask("SELECT min(created_at), max(created_at) FROM $held")
        oldest, newest = span.row(0)
        domains = self._ask(
            "SELECT task_domain, count(*) FROM $held GROUP BY ALL ORDER BY 2 DESC, 1"
        )
        return Held(
            size=len(self.span),
            capacity=self._settings.size,
            ttl=format_ttl(self._settings.ttl),
            oldest=oldest and oldest.isoformat(),
            newest=newest and newest.isoformat(),
            domains=dict(domains.iter_rows()),
        )

    def nearby(
        self, vectors: Sequence[Float32s], most: int, without: Sequence[int | None] | None = None
    ) -> list[Nearby]:
        """Find what each of some vectors resembles; see `most_similar`. All vectors are read once.

        Raises:
            WarehouseError: vectors are missing.
        """
        return most_similar(vectors, self._parts(), most, without, self.span.start)

    def _ask(self, query: LiteralString) -> pl.DataFrame:
        held = statement(_HELD, first=self.span.start, last=self.span.stop)
        return self._state.ask(statement(query, held=held))

    def _parts(self) -> Iterator[Float32s]:
        for places in self._places.iter_slices(_ROWS):
            yield read_vectors(self._vectors, places)


@dataclass(frozen=True)
class Caches:
    """The caches of a warehouse at a moment.

    Attributes:
        warehouse: the folder of the tables.
        state: what is published; its connection gets the table cache_window, see there.
        encoder_id: of the vectors.
        settings: of each cache.
        moment: when.
    """

    warehouse: Path
    state: State
    encoder_id: str
    settings: CacheSettings
    moment: Moment

    def of(self, groups: AbstractSet[str | None]) -> dict[str | None, CacheWindow]:
        """Find what those of some groups held; it is void at the next call.

        It takes the time of the days that hold them and of the store's hashes, and the memory of
        some of the vectors. Which days these are is counted in the groups of all traces; where all
        share one cache, the table's log tells it.

        Args:
            groups: see `cache_groups`; None alone where all share one.
        """
        state, connection = self.state, self.state.connection
        given = {"moment": self.moment.time, "before": self.moment.before, "since": self._since}
        set_variables(connection, **given, size=self.settings.size)
        rows = pl.DataFrame({"cache_group": list(groups)}, schema={"cache_group": pl.String})
        connection.register("cache_groups", rows.to_arrow())
        scores = parquet_relation("scores", state.files_of_days(self._days(groups)))
        connection.execute(sql(__name__, "cache_window.sql", scores=scores))
        connection.unregister("cache_groups")
        vectors = Layout(self.warehouse).vectors(self.encoder_id)
        VectorStore(vectors, connection).write_places("cache_window", state.staging.vectors)
        places = pl.read_parquet(state.staging.vectors, glob=False)
        spans = {group: range(first, last) for group, first, last in state.ask(_SPANS).iter_rows()}
        return {
            group: CacheWindow(state, vectors, places, self.settings, spans.get(group, range(0)))
            for group in groups
        }

    def rows(self, nearby: Sequence[Nearby]) -> dict[int, dict[str, Any]]:
        """The columns of cache_window.sql of all that some vectors resemble, by position."""
        wanted = {position for each in nearby for position, _ in each.nearest}
        found = pl.DataFrame({"position": sorted(wanted)}, schema={"position": pl.Int64})
        self.state.connection.register("found", found.to_arrow())
        rows = self.state.ask("FROM cache_window SEMI JOIN found USING (position)")
        self.state.connection.unregister("found")
        return {row["position"]: row for row in rows.to_dicts()}

    def positions(self, trace_ids: pl.Series) -> dict[str, int]:
        """Where they hold traces, by id; those that none holds are left out."""
        self.state.connection.register("named", pl.DataFrame({"trace_id": trace_ids}).to_arrow())
        query = "SELECT trace_id, position FROM cache_window SEMI JOIN named USING (trace_id)"
        found = self.state.ask(query)
        self.state.connection.unregister("named")
        return dict(found.iter_rows())

    @property
    def _since(self) -> datetime | None:
        """Until when what was made has expired; None if nothing has."""
        try:
            return self.moment.time - self.settings.ttl if self.settings.ttl else None
        except OverflowError:  # before the year 1
            return None

    def _days(self, groups: AbstractSet[str | None]) -> list[date]:
        """The days that hold what the groups held."""
        last = self.moment.time.astimezone(UTC).date()
        first = self._since.astimezone(UTC).date() if self._since else date.min
        if groups == {None}:
            counted = self.state.rows_by_day().with_columns(cache_group=pl.lit(None, pl.String))
        else:
            files = self.state.files_of_days(day for day in self.state.days if first <= day <= last)
            scores = parquet_relation("scores", files)
            counted = self.state.ask(rows_by_group(scores, statement("cache_groups")))
        days = counted.filter(pl.col("day").is_between(first, last)).sort("day", descending=True)
        # Of the last day not all may have come.
        rows = pl.when(pl.col("day") < last).then("rows").otherwise(0)
        later = rows.cum_sum().shift(1, fill_value=0).over("cache_group")
        return days.filter(later < self.settings.size).get_column("day").unique().to_list()


def similar(row: Mapping[str, Any], similarity: float, moment: datetime) -> dict[str, Any]:
    """The fields of `Similar`.

    Args:
        row: of `Caches.rows`.
        similarity: the cosine.
        moment: when the trace came that resembles it.
    """
    return {
        "trace_id": row["trace_id"],
        "task_domain": row["task_domain"],
        "created_at": row["created_at"].isoformat(),
        "similarity": similarity,
        "age_s": (moment - row["created_at"]).total_seconds(),
    }


def stored_vectors(
    warehouse: Path, state: State, encoder_id: str, text_hashes: list[str]
) -> dict[str, Float32s]:
    """The vectors of some texts, by their hashes, as far as they are stored.

    Args:
        warehouse: the folder of the tables.
        state: what is published.
        encoder_id: of the vectors.
        text_hashes: of the texts.
    """
    folder, path = Layout(warehouse).vectors(encoder_id), state.staging.folder / "stored.parquet"
    wanted = pl.DataFrame({"text_hash": text_hashes}).unique().with_row_index("position")
    state.connection.register("wanted", wanted.to_arrow())
    VectorStore(folder, state.connection).write_places("wanted", path)
    state.connection.unregister("wanted")
    found = wanted.hstack(pl.read_parquet(path, glob=False)).drop_nulls("chunk")
    return dict(zip(found.get_column("text_hash"), read_vectors(folder, found), strict=True))
