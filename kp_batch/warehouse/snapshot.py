"""What is published, or what a run left: the one door to the rows of all tables.

A snapshot names a version of each table, and opens none before it is asked for. Its rows come as
Polars scans, as SQL over the files of that version, or as views of a DuckDB connection.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Self, cast

import duckdb
import polars as pl

from kp_batch.duck import SQL, identifier, joined, read_parquet, statement
from kp_batch.errors import WarehouseError
from kp_batch.runs.record import RunRecord, done_runs
from kp_batch.schemas import GROWING, PARTITIONED_BY, TABLES
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.delta import additions, files_of
from kp_batch.warehouse.manifest import Manifest, require_manifest, shown_tables

_BY_PLACE = {"latest": -1, "previous": -2}  # of the runs that are done
_NAMED = 3  # at most, where a beginning is not unique
_NOTHING = Manifest({}, {})
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
    """The tables at the versions that are published, or that a run left.

    Whatever gives rows raises a WarehouseError where the table or its version is gone, or where
    files that a run left were removed.

    Attributes:
        warehouse: the folder of the tables.
        tables: the version of each; one that is missing has no rows.
        manifest: what was published with them: its settings.
        left_by: the run that left them; None: they are published. What grows ends with that run.
        beside: files of rows that no version has yet, by table.
    """

    warehouse: Path
    tables: Mapping[str, int]
    manifest: Manifest = _NOTHING
    left_by: RunRecord | None = None
    beside: Mapping[str, Sequence[Path]] = field(default_factory=dict[str, Sequence[Path]])

    @classmethod
    def shown_by(cls, warehouse: Path, catalog: duckdb.DuckDBPyConnection) -> Self:
        """The tables that an open catalog of a warehouse shows."""
        return cls(warehouse, shown_tables(catalog))

    def files(self, name: str) -> list[Path]:
        """The Parquet files of a table, sorted by path, then those beside it."""
        paths = files_of(self.warehouse.resolve(), name, self.tables.get(name))
        if self.left_by and not all(path.exists() for path in paths):
            raise WarehouseError(
                f"the tables as run {self.left_by.run_id} left them were removed (by kp-batch "
                "vacuum or forget); ask of a later run"
            )
        return [*paths, *self.beside.get(name, ())]

    def scan(self, name: str) -> pl.LazyFrame:
        """The rows of a table, without its partition column."""
        paths = self.files(name)
        if not paths:
            return TABLES[name].to_frame().lazy()
        rows = pl.scan_parquet(paths, glob=False, hive_partitioning=False)
        if self.left_by and name in GROWING:
            added_to = pl.col("published").str.json_path_match("$.tables.runs").cast(pl.Int64)
            runs = pl.scan_parquet(self.files("runs"), glob=False)
            until = runs.filter(added_to.fill_null(-1) <= self.left_by.added_to)
            return rows.join(until, on="run_id", how="semi", maintain_order="left")
        return rows

    def relation(self, name: str) -> SQL:
        """SQL for the rows of a table, without its partition column."""
        rows = parquet_relation(name, self.files(name))
        if self.left_by and name in GROWING:
            # See sql/runs.sql for the version that a run was added to.
            return statement(
                "(FROM $rows WHERE run_id IN (SELECT run_id FROM $runs "
                "WHERE coalesce((published->'tables'->>'runs')::BIGINT, -1) <= $added_to))",
                rows=rows,
                runs=parquet_relation("runs", self.files("runs")),
                added_to=self.left_by.added_to,
            )
        return rows

    @cached_property
    def days(self) -> Mapping[date, Sequence[Path]]:
        """The files of the scores by the day that they hold, in ascending order."""
        days: dict[date, list[Path]] = {}
        for path in self.files("scores"):
            day = path.parent.name.removeprefix(f"{PARTITIONED_BY['scores']}=")
            days.setdefault(date.fromisoformat(day), []).append(path)
        return days

    def scores_of(self, days: Iterable[date]) -> SQL:
        """SQL for the scores of some days: to open the files of all days takes a while."""
        return parquet_relation("scores", [path for day in days for path in self.days.get(day, [])])

    def rows_by_day(self) -> pl.DataFrame:
        """Count the scores by day: `day` and `rows`. The table's log tells; see `DataFile.rows`."""
        files = additions(self.warehouse.resolve(), "scores", self.tables["scores"])
        day = pl.col(f"partition.{PARTITIONED_BY['scores']}").alias("day")
        return files.group_by(day).agg(rows=pl.col("num_records").sum())

    @property
    def scored(self) -> int:
        """How many traces have a score."""
        return int(self.rows_by_day()["rows"].sum()) if "scores" in self.tables else 0

    def runs(self) -> list[RunRecord]:
        """The rows of `runs`; the column `inputs`, which may be large, is not read."""
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
        """Find the run that each name means.

        Args:
            names: a run_id, the beginning of one alone, `latest` (the last run that is done) or
                `previous` (the one that was done before it).

        Raises:
            WarehouseError: there is no such run, or several.
        """
        runs = sorted(self.runs(), key=lambda run: -run.added_to)
        return [self._find_run(name, runs) for name in names]

    def _find_run(self, name: str, runs: Sequence[RunRecord]) -> RunRecord:
        where = shown(self.warehouse)
        see = f"see: kp-batch runs --warehouse {quote(where)}"
        if name in _BY_PLACE:
            done = done_runs(runs)
            if len(done) >= -_BY_PLACE[name]:
                return done[_BY_PLACE[name]]
            missing = "is done" if name == "latest" else "was done before the last one"
            raise WarehouseError(f"there is no {name} run in {where}: none {missing}; {see}")
        found = [run for run in runs if name and run.run_id.startswith(name)]
        exact = [run for run in found if run.run_id == name]
        if not found:
            raise WarehouseError(f"there is no run {name!r} in {where}; {see}")
        if len(found) > 1 and not exact:
            more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
            raise WarehouseError(
                f"{name!r} begins the names of {len(found):,} runs in {where}: "
                f"{', '.join(run.run_id for run in found[:_NAMED])}{more}; write more of the one "
                "that you mean"
            )
        return [*exact, *found][0]

    def as_of(self, run: RunRecord) -> "PublishedSnapshot":
        """The tables as one of the runs left them.

        Raises:
            WarehouseError: its row says what no run writes.
        """
        left = manifest_left(run)
        growing = {name: self.tables[name] for name in GROWING if name in self.tables}
        return PublishedSnapshot(self.warehouse, left.tables | growing, left, run)


def published(warehouse: Path, as_of: str | None = None) -> PublishedSnapshot:
    """What is published.

    Args:
        warehouse: the folder of the tables.
        as_of: a run, as `find_runs` takes it: the tables as that run left them; None: as they are.

    Raises:
        WarehouseError: nothing is published, or there is no such run.
    """
    manifest = require_manifest(warehouse)
    now = PublishedSnapshot(warehouse, manifest.tables, manifest)
    return now if as_of is None else now.as_of(*now.find_runs(as_of))


def manifest_left(run: RunRecord) -> Manifest:
    """What was published when a run had ended, without the table of runs.

    Raises:
        WarehouseError: its row says what no run writes.
    """
    try:
        left = Manifest.read(run.settings, run.published["tables"])
    except (ValueError, LookupError, TypeError) as error:
        raise WarehouseError(
            f"what run {run.run_id!r} published is damaged in the table runs; restore the "
            "warehouse from a copy, or run the archive into a new folder"
        ) from error
    return replace(left, tables={name: left.tables[name] for name in left.tables if name != "runs"})


def parquet_relation(
    name: str, paths: Sequence[Path], shown_as: Callable[[Path], str] = str
) -> SQL:
    """SQL for the rows of some of a table's files; without paths, no rows of the same columns.

    Args:
        name: the table's.
        paths: the files.
        shown_as: where the reader of the SQL finds each of them.
    """
    if paths:
        return read_parquet(*map(shown_as, paths))
    return statement("(SELECT $nulls WHERE false)", nulls=_nulls(TABLES[name]))


def _nulls(columns: Mapping[str, pl.DataType]) -> SQL:
    return joined(
        statement("NULL::$type AS $name", type=_duckdb_type(dtype), name=identifier(name))
        for name, dtype in columns.items()
    )


def _duckdb_type(dtype: pl.DataType) -> SQL:
    if isinstance(dtype, pl.List):
        return statement("$type[]", type=_duckdb_type(cast("pl.DataType", dtype.inner)))
    return SQL(_DUCKDB_TYPES[dtype.base_type()])


def create_view(connection: duckdb.DuckDBPyConnection, schema: str, name: str, rows: SQL) -> None:
    """Create a view of a schema of the connection, over rows."""
    view = statement("CREATE VIEW $schema.$name AS FROM $rows", schema=schema, name=name, rows=rows)
    connection.execute(view)


def frame_of(rows: duckdb.DuckDBPyRelation) -> pl.DataFrame:
    """Run a query of DuckDB and return its rows as a frame."""
    return pl.DataFrame(rows.to_arrow_table())
