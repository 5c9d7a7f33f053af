"""What the cache of a warehouse held at a moment, and what of it a vector resembles."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from kp_batch.embedding.chunks import read_vectors
from kp_batch.embedding.store import VectorStore
from kp_batch.novelty.nearest import Nearby, most_similar
from kp_batch.novelty.settings import CacheSettings, format_ttl
from kp_batch.operations.explained import Held
from kp_batch.planning.state import State
from kp_batch.sql import set_variables, sql
from kp_batch.vectors import Float32s
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.relations import parquet_relation

_ROWS = 16_384  # vectors held at once


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

    It takes the time of the days that hold them and of the store's hashes, and the memory of some
    of the vectors.

    Args:
        warehouse: the folder of the tables.
        state: what is published; its connection gets the table cache_window, see there.
        encoder_id: of the vectors.
        settings: of the cache.
        moment: when.
    """

    def __init__(
        self,
        warehouse: Path,
        state: State,
        encoder_id: str,
        settings: CacheSettings,
        moment: Moment,
    ) -> None:
        self._state, self._settings = state, settings
        self._vectors = Layout(warehouse).vectors(encoder_id)
        self._places = state.staging.vectors
        since = _expired(moment.time, settings)
        given = {"moment": moment.time, "before": moment.before, "since": since}
        set_variables(state.connection, **given, size=settings.size)
        days = _days(state, moment.time, since, settings.size)
        rows = parquet_relation("scores", state.files_of_days(days))
        state.connection.execute(sql(__name__, "cache_window.sql", scores=rows))
        VectorStore(self._vectors, state.connection).write_places("cache_window", self._places)

    @cached_property
    def size(self) -> int:
        """How many traces it holds."""
        return int(self._state.ask("SELECT count(*) FROM cache_window").item())

    def held(self) -> Held:
        """Tell what it holds."""
        span = self._state.ask("SELECT min(created_at), max(created_at) FROM cache_window")
        oldest, newest = span.row(0)
        domains = self._state.ask(
            "SELECT task_domain, count(*) FROM cache_window GROUP BY ALL ORDER BY 2 DESC, 1"
        )
        return Held(
            size=self.size,
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
        return most_similar(vectors, self._parts(), most, without)

    def rows(self, nearby: Sequence[Nearby]) -> dict[int, dict[str, Any]]:
        """The columns of cache_window.sql of all that some vectors resemble, by position."""
        wanted = {position for each in nearby for position, _ in each.nearest}
        found = pl.DataFrame({"position": sorted(wanted)}, schema={"position": pl.Int64})
        self._state.connection.register("found", found.to_arrow())
        rows = self._state.ask("FROM cache_window SEMI JOIN found USING (position)")
        self._state.connection.unregister("found")
        return {row["position"]: row for row in rows.to_dicts()}

    def positions(self, trace_ids: pl.Series) -> dict[str, int]:
        """Where it holds traces, by id; those that it does not hold are left out."""
        self._state.connection.register("named", pl.DataFrame({"trace_id": trace_ids}).to_arrow())
        query = "SELECT trace_id, position FROM cache_window SEMI JOIN named USING (trace_id)"
        found = self._state.ask(query)
        self._state.connection.unregister("named")
        return dict(found.iter_rows())

    def _parts(self) -> Iterator[Float32s]:
        with pq.ParquetFile(self._places) as file:
            for batch in file.iter_batches(_ROWS):
                yield read_vectors(self._vectors, pl.DataFrame(batch))


def similar(row: Mapping[str, Any], similarity: float, moment: datetime) -> dict[str, Any]:
    """The fields of `Similar`.

    Args:
        row: of `CacheWindow.rows`.
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


def _expired(time: datetime, settings: CacheSettings) -> datetime | None:
    """Until when what was made has expired by a time; None if nothing has."""
    try:
        return time - settings.ttl if settings.ttl else None
    except OverflowError:  # before the year 1
        return None


def _days(state: State, time: datetime, since: datetime | None, size: int) -> list[date]:
    """The days that hold the last traces until a time, the last day first."""
    last, first = time.astimezone(UTC).date(), since.astimezone(UTC).date() if since else date.min
    days: list[date] = []
    held = 0  # on days before the last one, of which not all may have come
    for day, rows in state.rows_by_day().sort("day", descending=True).iter_rows():
        if day > last:
            continue
        if day < first or held >= size:
            break
        days.append(day)
        held += rows if day < last else 0
    return days
