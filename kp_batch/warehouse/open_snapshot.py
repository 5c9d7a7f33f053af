"""The published tables, opened: views of one DuckDB connection, with the files of a run."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path

import duckdb
import polars as pl

from kp_batch.duck import frame_of, sql
from kp_batch.schemas import TIMESTAMP
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.snapshot import PublishedSnapshot, published
from kp_batch.warehouse.staging import Staging

_FINGERPRINTS = pl.Schema(
    {
        "day": pl.Date,
        "created_at": TIMESTAMP,
        **dict.fromkeys(("task_domain", "encoder_id", "cache_id", "profile_id"), pl.String()),
        "traces": pl.Int64(),
        "max_window": pl.Int64(),
    }
)


@dataclass(frozen=True, kw_only=True)
class OpenSnapshot(PublishedSnapshot):
    """A snapshot whose tables are views in the schema `published` of a connection with `day_of`.

    Attributes:
        staging: the run's files; what does not fit into memory is spilled there.
        connection: the connection to DuckDB.
    """

    staging: Staging
    connection: duckdb.DuckDBPyConnection

    def ask(self, query: str, **frames: pl.DataFrame) -> pl.DataFrame:
        """Return the answer to a query, with the frames as tables of these names."""
        for name, frame in frames.items():
            self.connection.register(name, frame.to_arrow())
        answer = frame_of(self.connection.sql(query))
        for name in frames:
            self.connection.unregister(name)
        return answer

    def fingerprints(self, moments: Sequence[datetime]) -> pl.DataFrame:
        """Return the ids of the published scores, by day, domain and current weights.

        Args:
            moments: the times from which weights apply, see `ProfileVersions.moments`.

        Returns:
            day, created_at (a time of that day with the same weights as all of these traces),
                task_domain, the three ids, `traces` (how many) and `max_window` (the size of the
                largest window).
        """
        within = [moment for moment in moments if moment.timetz() != time(tzinfo=UTC)]
        rows = pl.DataFrame({"moment": within}, schema={"moment": TIMESTAMP})
        fingerprints = self.ask(sql(__name__, "fingerprints.sql"), moments=rows)
        return fingerprints.cast({"created_at": TIMESTAMP})

    def current_fingerprints(self) -> pl.DataFrame:
        """Return `fingerprints` if no score is stale: days and counts, from the lists of files.

        The other columns are null, which is not stale. A query of ten million scores took four
        seconds.
        """
        if "scores" not in self.manifest.tables:
            return _FINGERPRINTS.to_frame()
        by_day = self.rows_by_day().select("day", traces="rows")
        return pl.concat([_FINGERPRINTS.to_frame(), by_day], how="diagonal_relaxed")


@contextmanager
def open_snapshot(snapshot: PublishedSnapshot, staging: Staging) -> Generator[OpenSnapshot]:
    """Open a snapshot's tables together; see `OpenSnapshot`."""
    with staging.connect() as connection:
        create_macros(connection, "day_of")
        snapshot.attach(connection, "published")
        yield OpenSnapshot(
            warehouse=snapshot.warehouse,
            manifest=snapshot.manifest,
            past_run=snapshot.past_run,
            is_candidate=snapshot.is_candidate,
            staging=staging,
            connection=connection,
        )


@contextmanager
def open_published(warehouse: Path, as_of: str | None = None) -> Generator[OpenSnapshot]:
    """Open what is published, with temporary files; for `as_of` see `published`.

    Raises:
        WarehouseError: it is not a warehouse.
    """
    with (
        Staging.temporary() as staging,
        open_snapshot(published(warehouse, as_of), staging) as snapshot,
    ):
        yield snapshot
