"""The tables of a manifest, published, past or a candidate: all rows are read here.

A table is opened only when its rows are needed. They come as Polars scans, as SQL over the files of
the manifest, or as views of a DuckDB connection.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import Self, cast

import duckdb
import polars as pl
from polars.exceptions import PanicException

from kp_batch.duck import SQL, identifier, joined, read_parquet, statement
from kp_batch.errors import WarehouseError
from kp_batch.schemas import GROWING, TABLES
from kp_batch.text import time_of
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.file_lists import DataFile, located, month_of, read_list
from kp_batch.warehouse.manifest import (
    Manifest,
    damaged_candidate,
    past_manifest,
    read_candidate,
    require_manifest,
    shown_manifest,
)
from kp_batch.warehouse.run_record import RunRecord, done_runs

CANDIDATE = "candidate"  # names what a run would have published
_BY_POSITION = {"latest": -1, "previous": -2}  # among the runs that are done
# The beginning of a time, unlike a run_id such as 20260301T020000Z-a1b2c3.
_DASHED_YEAR = re.compile("[0-9]{4}-")
_NAMES_SHOWN = 3  # at most, if a beginning is not unique
_EMPTY = Manifest({}, {})
_DUCKDB_TYPES: Mapping[type[pl.DataType], str] = {
    pl.String: "VARCHAR",
    pl.Int64: "BIGINT",
    pl.Float64: "DOUBLE",
    pl.Boolean: "BOOLEAN",
    pl.Date: "DATE",
    pl.Datetime: "TIMESTAMPTZ",
}


@dataclass(frozen=True)
class PublishedSnapshot:
    """The tables as they are published, were after a past run, or are in a candidate.

    All that reads rows raises a WarehouseError if a list of files is gone.

    Attributes:
        warehouse: the folder of the tables.
        manifest: the settings and the files; a missing table has no rows.
        past_run: the run after which they were so; None: not a past state. Tables that only grow
            then leave later rows out.
        is_candidate: whether the manifest is unpublished: its new files are in its own folder.
    """

    warehouse: Path
    manifest: Manifest = _EMPTY
    past_run: RunRecord | None = None
    is_candidate: bool = False

    @classmethod
    def shown_by(cls, warehouse: Path, catalog: duckdb.DuckDBPyConnection) -> Self:
        """Return the tables that an open catalog of a warehouse shows."""
        return cls(warehouse, shown_manifest(warehouse, catalog))

    def data_files(self, name: str) -> list[DataFile]:
        """Return the files of a table, sorted by their paths."""
        lists = self.manifest.tables.get(name, {}).values()
        files = (file for each in lists for file in read_list(self.warehouse, each))
        return sorted(files, key=attrgetter("path"))

    def files(self, name: str) -> list[Path]:
        """Return the Parquet files of a table, sorted by their paths."""
        return [*map(Path, self._paths(name))]

    def _paths(self, name: str) -> list[str]:
        """Return the Parquet files of a table as texts."""
        return [path for _, path in self._located(name, self.manifest.tables.get(name, {}))]

    def files_of_day(self, day: date) -> list[Path]:
        """Return the files of the scores of a day; it opens only the list of its month."""
        return [*map(Path, self._paths_by_day([month_of(day)]).get(day, ()))]

    def _paths_by_day(self, months: Iterable[str]) -> Mapping[date, Sequence[str]]:
        """Return the files of the scores of some months by their day, in order."""
        days: dict[date, list[str]] = {}
        for file, path in self._located("scores", months):
            days.setdefault(cast("date", file.partition), []).append(path)
        return days

    def _located(self, name: str, months: Iterable[str]) -> list[tuple[DataFile, str]]:
        """Return the files of a table listed in some months, and where they are, in order."""
        lists, root = self.manifest.tables.get(name, {}), self.warehouse.resolve()
        each = (
            located(self.warehouse, root, name, lists[month]) for month in months if month in lists
        )
        return sorted(chain.from_iterable(each), key=lambda pair: pair[0].path)

    def scan(self, name: str) -> pl.LazyFrame:
        """Scan the rows of a table, without its partition column."""
        paths = self._paths(name)
        if not paths:
            return TABLES[name].to_frame().lazy()
        rows = pl.scan_parquet(paths, glob=False, hive_partitioning=False)
        if self.past_run and name in GROWING:
            number = pl.col("published").str.json_path_match("$.number").cast(pl.Int64)
            runs = pl.scan_parquet(self._paths("runs"), glob=False)
            until = runs.filter(number <= self.past_run.number)
            return rows.join(until, on="run_id", how="semi", maintain_order="left")
        return rows

    def relation(self, name: str) -> SQL:
        """Return SQL for the rows of a table, without its partition column."""
        rows = parquet_relation(name, self._paths(name))
        if self.past_run and name in GROWING:
            return statement(
                "(FROM $rows WHERE run_id IN (SELECT run_id FROM $runs "
                "WHERE (published->>'number')::BIGINT <= $number))",
                rows=rows,
                runs=parquet_relation("runs", self._paths("runs")),
                number=self.past_run.number,
            )
        return rows

    @cached_property
    def days(self) -> Mapping[date, Sequence[str]]:
        """Return the files of the scores by their day, ascending."""
        return self._paths_by_day(self.manifest.tables.get("scores", {}))

    def scores_of(self, days: Iterable[date]) -> SQL:
        """Return SQL for the scores of some days, which opens only their files."""
        wanted = [*days]
        paths = self._paths_by_day({month_of(day) for day in wanted})
        return parquet_relation("scores", [path for day in wanted for path in paths.get(day, ())])

    def newest_trace(self, now: datetime) -> datetime | None:
        """Return the time of the newest trace that is not after `now`, by the files of its day."""
        for month in sorted(self.manifest.tables.get("scores", {}), reverse=True):
            for day, paths in sorted(self._paths_by_day([month]).items(), reverse=True):
                if day <= now.date() and (newest := _newest_until(now, paths)):
                    return newest
        return None

    def rows_by_day(self) -> pl.DataFrame:
        """Count the scores by day, from the lists of files: `day` and `rows`."""
        files = [(file.partition, file.rows) for file in self.data_files("scores")]
        schema = {"day": pl.Date, "rows": pl.Int64}
        return pl.DataFrame(files, schema, orient="row").group_by("day").agg(pl.col("rows").sum())

    @property
    def before(self) -> "PublishedSnapshot":
        """Return the tables that it builds upon; none before the first publication.

        Raises:
            WarehouseError: their manifest was removed.
        """
        before = self.manifest.before
        manifest = past_manifest(self.warehouse, before) if before else _EMPTY
        return PublishedSnapshot(self.warehouse, manifest)

    @property
    def is_whole(self) -> bool:
        """Whether all files exist, with the sizes in the lists."""
        return all(
            path.exists() and path.stat().st_size == file.size
            for name, months in self.manifest.tables.items()
            for file, path in ((file, Path(path)) for file, path in self._located(name, months))
        )

    @property
    def encoder_ids(self) -> set[str]:
        """Return the encoder ids of all scores."""
        return {*self.scan("scores").select(pl.col("encoder_id").unique()).collect().to_series()}

    @property
    def scored(self) -> int:
        """Return how many traces have a score."""
        return int(self.rows_by_day()["rows"].sum())

    def runs(self) -> list[RunRecord]:
        """Return the rows of `runs`, without the column `inputs`, which may be large."""
        columns = [field.name for field in fields(RunRecord)]
        rows = self.scan("runs").select(columns).collect()
        return [RunRecord.of(row) for row in rows.iter_rows(named=True)]

    def attach(
        self, connection: duckdb.DuckDBPyConnection, schema: str, names: Iterable[str] = TABLES
    ) -> None:
        """Create a view of each table in a new schema of a connection."""
        connection.execute(statement("CREATE SCHEMA $schema", schema=schema))
        for name in names:
            create_view(connection, schema, name, self.relation(name))

    def find_runs(self, *names: str) -> list[RunRecord]:
        """Find the run of each name.

        Args:
            names: each is a run_id, a unique beginning of one, `latest` (the last run that is
                done), `previous` (the done run before it), or a time: the last run done by then. A
                day is its midnight, and a time without a zone is UTC.

        Raises:
            WarehouseError: there is no such run, or several.
        """
        runs = sorted(self.runs(), key=lambda run: -run.number)
        return [self._find_run(name, runs) for name in names]

    def _find_run(self, name: str, runs: Sequence[RunRecord]) -> RunRecord:
        where = shown(self.warehouse)
        see = f"see: kp-batch runs --warehouse {quote(where)}"
        if name in _BY_POSITION:
            done = done_runs(runs)
            if len(done) >= -_BY_POSITION[name]:
                return done[_BY_POSITION[name]]
            done_so_far = "only one run is done" if done else "no run is done"
            message = f"there is no {name} run in {where}: {done_so_far}; {see}"
            raise WarehouseError(message, code="no_run")
        if _DASHED_YEAR.match(name):
            return _done_by(name, runs, where, see)
        matches = [run for run in runs if name and run.run_id.startswith(name)]
        exact = [run for run in matches if run.run_id == name]
        if not matches:
            raise WarehouseError(f"there is no run {name!r} in {where}; {see}", code="no_run")
        if len(matches) > 1 and not exact:
            rest = len(matches) - _NAMES_SHOWN
            more = f" and {rest:,} more" if rest > 0 else ""
            raise WarehouseError(
                f"{name!r} matches {len(matches):,} runs in {where}: "
                f"{', '.join(run.run_id for run in matches[:_NAMES_SHOWN])}{more}; write more of "
                "the id"
            )
        return [*exact, *matches][0]

    def as_of(self, run: RunRecord) -> "PublishedSnapshot":
        """Return the tables as they were after a run.

        Raises:
            WarehouseError: its files were removed.
        """
        manifest = self.manifest_after(run)
        tables = self.manifest.tables
        growing = {name: tables[name] for name in GROWING if name in tables}
        manifest = replace(manifest, tables={**manifest.tables, **growing})
        return PublishedSnapshot(self.warehouse, manifest, run)

    def manifest_after(self, run: RunRecord) -> Manifest:
        """Return the manifest that a run published.

        Raises:
            WarehouseError: its files were removed, or the manifest is gone or damaged.
        """
        if run.number < self.manifest.kept_from:
            raise WarehouseError(f"the tables of run {run.run_id} were removed; choose a later run")
        return past_manifest(self.warehouse, run.published["publication"])


def published(warehouse: Path, as_of: str | None = None) -> PublishedSnapshot:
    """Open what is published, or the tables as they were after a run; see `find_runs`.

    As of `candidate`, they are what the last run would have published.

    Raises:
        WarehouseError: nothing is published, or there is no such run.
    """
    if as_of == CANDIDATE:
        return kept_candidate(warehouse)
    manifest = require_manifest(warehouse)
    now = PublishedSnapshot(warehouse, manifest)
    return now if as_of is None else now.as_of(*now.find_runs(as_of))


def kept_candidate(warehouse: Path) -> PublishedSnapshot:
    """Open what the last run would have published, if audits refused it or it was a preview.

    Raises:
        WarehouseError: nothing was kept.
    """
    manifest = read_candidate(warehouse)
    if manifest is None:
        raise WarehouseError(
            f"there is no candidate in {shown(warehouse)}: make one with run --preview; a run that "
            "audits refuse also leaves one, until the next run"
        )
    snapshot = PublishedSnapshot(warehouse, manifest, is_candidate=True)
    if not snapshot.is_whole:
        raise damaged_candidate(warehouse)
    return snapshot


def _newest_until(now: datetime, paths: Sequence[str]) -> datetime | None:
    times = pl.scan_parquet([*paths], glob=False, hive_partitioning=False)
    until_now = pl.col("created_at").filter(pl.col("created_at") <= now)
    return times.select(until_now.max()).collect().item()


def _done_by(name: str, runs: Iterable[RunRecord], where: str, see: str) -> RunRecord:
    """Return the run published last among those done by a time, whatever the clocks say.

    Raises:
        WarehouseError: there was none, or the name is not a time.
    """
    time = time_of(name)
    if time is None:
        raise WarehouseError(
            f"{name!r} is not a time; write it as 2026-03-01, 2026-03-01T02:00 (in UTC) or "
            "2026-03-01T02:00+01:00"
        )
    done = done_runs(runs)
    by_then = [run for run in done if run.finished_at <= time]
    if by_then:
        return by_then[-1]
    later = ", nor later"
    if done:
        first = min(done, key=lambda run: run.finished_at)
        at = f"{first.finished_at:%Y-%m-%d %H:%M:%S}"
        later = f": the first one, {first.run_id}, was at {at} UTC"
    raise WarehouseError(
        f"no run of {where} was done by {time:%Y-%m-%d %H:%M:%S} UTC{later}; {see}"
    )


def parquet_relation(name: str, paths: Sequence[str | Path]) -> SQL:
    """Return SQL for the rows of some of a table's files; without files, the columns alone.

    A file has a path or a URL.
    """
    if paths:
        return read_parquet(*paths)
    nulls = joined(
        statement("NULL::$type AS $name", type=_duckdb_type(dtype), name=identifier(column))
        for column, dtype in TABLES[name].items()
    )
    return statement("(SELECT $nulls WHERE false)", nulls=nulls)


def _duckdb_type(dtype: pl.DataType) -> SQL:
    if isinstance(dtype, pl.List):
        return statement("$type[]", type=_duckdb_type(cast("pl.DataType", dtype.inner)))
    return SQL(_DUCKDB_TYPES[dtype.base_type()])


def create_view(connection: duckdb.DuckDBPyConnection, schema: str, name: str, rows: SQL) -> None:
    """Create a view of rows in a schema of the connection."""
    view = statement("CREATE VIEW $schema.$name AS FROM $rows", schema=schema, name=name, rows=rows)
    connection.execute(view)


def newest_trace(warehouse: Path) -> str | None:
    """The time of the newest published trace that is not in the future; None: there is none.

    A table that cannot be read does not fail the run: then nobody knows.
    """
    newest = None
    with suppress(Exception, PanicException):
        newest = published(warehouse).newest_trace(datetime.now(UTC))
    return newest.isoformat() if newest else None
