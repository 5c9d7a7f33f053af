"""Gathers what the page tells of the traces in its tables."""

from dataclasses import fields
from pathlib import Path

import duckdb
import polars as pl

from kp_batch.dimensions import DIMENSIONS
from kp_batch.duck import columns, sql, statement
from kp_batch.ingest.reread import locations_query
from kp_batch.pipeline.report_texts import read_texts
from kp_batch.report.report_data import ReportData
from kp_batch.report.traces import Detail, Traces
from kp_batch.scoring.composite import breakdowns
from kp_batch.scoring.profiles import WeightProfile
from kp_batch.steps.step import Executor
from kp_batch.warehouse.snapshot import PublishedSnapshot, frame_of

_BEYOND = 2**63 - 1  # all rows; see locations.sql
_PROFILES = statement("SELECT name, $columns FROM kp.profiles", columns=columns(DIMENSIONS))


def gather_traces(
    warehouse: Path, connection: duckdb.DuckDBPyConnection, data: ReportData, executor: Executor
) -> Traces:
    """Ask how the scores in the page's tables came about, and read the traces' texts again.

    Args:
        warehouse: the folder of the tables.
        connection: its catalog.
        data: what the catalog told for the report.
        executor: reads the archive's files.
    """
    rows = _located(warehouse, connection, data.traces)
    profiles = [WeightProfile(*row) for row in connection.execute(_PROFILES).fetchall()]
    columns = [each.name for each in fields(Detail) if each.name != "breakdown"]
    known = rows.with_columns(pl.col("row").replace(_BEYOND, None))
    details = {
        row["trace_id"]: Detail(breakdown, **{name: row[name] for name in columns})
        for row, breakdown in zip(known.to_dicts(), breakdowns(rows, profiles), strict=True)
    }
    # A run that failed may have been the one that was to leave them out.
    shows_text = all(run.shows_text for run in (data.run, data.failed) if run)
    return Traces(details, read_texts(rows, executor) if shows_text else None)


def _located(
    warehouse: Path, connection: duckdb.DuckDBPyConnection, traces: pl.DataFrame
) -> pl.DataFrame:
    """Find where the archive held the traces, and those nearest to them: rows of told.sql."""
    own = traces.select("trace_id", "day", "overall")
    nearest = traces.select(trace_id="nearest_trace_id", day="nearest_day", overall="overall")
    asked = pl.concat([own, nearest]).drop_nulls("trace_id")
    first = asked.group_by("trace_id").agg(is_first=pl.col("overall").any())
    connection.register("asked", first.to_arrow())
    snapshot = PublishedSnapshot.shown_by(warehouse, connection)
    # Only their days: to open the files of all days takes a while.
    scores = snapshot.scores_of(asked.get_column("day").unique().sort())
    connection.execute(sql(__name__, "told.sql", scores=scores))
    return frame_of(connection.sql(locations_query("told", "kp.files", snapshot.relation("facts"))))
