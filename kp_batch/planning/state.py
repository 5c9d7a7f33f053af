"""The published state: every table as a view of one DuckDB connection."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Self

import polars as pl

from kp_batch.contracts import TABLES, TIMESTAMP
from kp_batch.sql import sql
from kp_batch.staging import Staging
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.relations import attach_tables, frame_of, partitions_of, rows_by_day

_FINGERPRINTS = pl.Schema(
    {
        "day": pl.Date,
        "created_at": TIMESTAMP,
        **dict.fromkeys(("task_domain", "encoder_id", "cache_id", "profile_id"), pl.String()),
        "traces": pl.Int64(),
        "met": pl.Int64(),
    }
)


class State:
    """The published tables, as views in the schema `published` of a connection with the macros.

    Args:
        warehouse: the folder of the tables.
        tables: the published version of each.
        staging: the run's files; what does not fit into memory is spilled there.
    """

    def __init__(self, warehouse: Path, tables: Mapping[str, int], staging: Staging) -> None:
        self.staging = staging
        self._warehouse, self._tables = warehouse, tables
        self.days = partitions_of(warehouse, "scores", tables.get("scores"))
        self.connection = staging.connect()
        create_macros(self.connection)
        attach_tables(self.connection, warehouse, tables, "published")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def table(self, name: str) -> pl.DataFrame:
        """All rows of a published table."""
        rows = frame_of(self.connection.table(f"published.{name}"))
        return rows.select(list(TABLES[name])).cast(TABLES[name])

    def files_of_days(self, days: Iterable[date]) -> list[Path]:
        """The files of the published scores of some days."""
        return [path for day in days for path in self.days.get(day, [])]

    def fingerprints(self, moments: Sequence[datetime]) -> pl.DataFrame:
        """What computed the published scores, by day, domain and the weights in force.

        Args:
            moments: from which weights hold, see `ProfileVersions.moments`.

        Returns:
            day, created_at (a time of that day at which the same weights hold as at those of all
            the traces), task_domain, the three ids, `traces` (how many) and `met` (the most that
            any of them met).
        """
        within = [each for each in moments if each.timetz() != time(tzinfo=UTC)]
        rows = pl.DataFrame({"moment": within}, schema={"moment": TIMESTAMP})
        self.connection.register("moments", rows.to_arrow())
        return self.ask(sql(__name__, "fingerprints.sql")).cast({"created_at": TIMESTAMP})

    def current_fingerprints(self) -> pl.DataFrame:
        """The same where none of the scores is stale: the days and their traces, which the log has.

        All else is null, so that nothing of it is as it has to be made. To ask ten million scores
        took four seconds.
        """
        if "scores" not in self._tables:
            return _FINGERPRINTS.to_frame()
        by_day = self.rows_by_day().select("day", traces="rows")
        return pl.concat([_FINGERPRINTS.to_frame(), by_day], how="diagonal_relaxed")

    def rows_by_day(self) -> pl.DataFrame:
        """Count the published scores by day: `day` and `rows`. The log tells it."""
        return rows_by_day(self._warehouse, "scores", self._tables["scores"])

    def ask(self, query: str) -> pl.DataFrame:
        """The answer to a query."""
        return frame_of(self.connection.sql(query))
