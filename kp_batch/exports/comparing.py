"""Compare an export with an earlier one: which traces entered and left, and why."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from kp_batch.columns import Rows
from kp_batch.duck import frame_of
from kp_batch.html import Displayed
from kp_batch.schemas import TIMESTAMP
from kp_batch.scoring.facts import id_hash
from kp_batch.warehouse.snapshot import published

_LISTED = 100
_ENTERED, _LEFT = "entered", "left"


class ExportChanges(Rows):
    """Traces that entered or left since an earlier export."""

    __slots__ = ()
    names = ("trace_id", "earlier_score", "score", "change_of_export", "why")


@dataclass(frozen=True)
class ExportComparison(Displayed):
    """Which traces entered and left since an earlier export."""

    in_both: int
    entered: dict[str, int]  # traces only in this export, by reason
    left: dict[str, int]  # traces only in the earlier export, by reason
    changes: ExportChanges  # the first 100 that entered and that left, by id


def compare_exports(
    warehouse: Path, connection: duckdb.DuckDBPyConnection, chosen: Path, earlier: pl.DataFrame
) -> ExportComparison:
    """Compare an export with an earlier one of the same warehouse.

    Each trace gets the first reason that holds. It left because it was forgotten, has no score now,
    has another score, was replaced by a better trace, is private or can no longer be read or
    written, or does not meet the conditions of this export. It entered because it is newer than
    all traces of the earlier export, or because it was not chosen then.

    Args:
        warehouse: the folder of the tables.
        connection: has the view `read`, the traces that can be written, and the table `exported`.
        chosen: the file of `choose`.
        earlier: the result of `earlier_scores`.
    """
    snapshot = published(warehouse)
    scores = snapshot.scan("scores").select("trace_id", "created_at", now="score")
    before = earlier.lazy().rename({"score": "earlier_score"})
    exported, read = (
        frame_of(connection.sql(query)).lazy()
        for query in ("SELECT trace_id FROM exported", "SELECT trace_id FROM read")
    )
    met = pl.scan_parquet(chosen).select("trace_id")
    forgotten = snapshot.scan("forgotten").with_columns(is_forgotten=True)
    rows = (
        before.with_columns(is_before=True)
        .join(exported.with_columns(is_exported=True), on="trace_id", how="full", coalesce=True)
        .join(scores, on="trace_id", how="left")
        .join(read.with_columns(is_read=True), on="trace_id", how="left")
        .join(met.with_columns(is_met=True), on="trace_id", how="left")
        .with_columns(id_hash=id_hash())
        .join(forgotten, on="id_hash", how="left")
        .rename({"now": "score"})
        .with_columns(pl.col(pl.Boolean).fill_null(value=False))
        .sort("trace_id")
        .collect()
    )
    return _comparison(rows)


def _comparison(rows: pl.DataFrame) -> ExportComparison:
    newest = rows.filter("is_before")["created_at"].max()
    is_newer = pl.col("created_at") > pl.lit(newest, TIMESTAMP)  # null: no earlier trace is known
    entered = rows.filter(~pl.col("is_before")).with_columns(
        pl.lit(_ENTERED).alias("change_of_export"),
        pl.when(is_newer).then(pl.lit("newer")).otherwise(pl.lit("not chosen then")).alias("why"),
    )
    moved = pl.col("earlier_score").is_not_null() & (pl.col("earlier_score") != pl.col("score"))
    left = rows.filter("is_before", ~pl.col("is_exported")).with_columns(
        pl.lit(_LEFT).alias("change_of_export"),
        pl.when("is_forgotten")
        .then(pl.lit("forgotten"))
        .when(pl.col("score").is_null())
        .then(pl.lit("no longer scored"))
        .when(moved)
        .then(pl.lit("its score changed"))
        .when("is_read")
        .then(pl.lit("a better trace replaced it"))
        .when("is_met")
        .then(pl.lit("private, unreadable or unwritable now"))
        .otherwise(pl.lit("does not meet the conditions"))
        .alias("why"),
    )
    listed = (each.select(ExportChanges.names).head(_LISTED).to_dicts() for each in (entered, left))
    return ExportComparison(
        in_both=rows.filter("is_before", "is_exported").height,
        entered=_counts(entered["why"]),
        left=_counts(left["why"]),
        changes=ExportChanges.of(row for several in listed for row in several),
    )


def _counts(reasons: Iterable[Any]) -> dict[str, int]:
    return dict(sorted(Counter(reasons).items()))
