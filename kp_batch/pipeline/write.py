"""Writes the tables; of the scores, only the days in which anything differs."""

from collections.abc import Iterable, Iterator
from datetime import date
from itertools import groupby
from pathlib import Path

import polars as pl

from kp_batch.archive.ledger import as_frame
from kp_batch.contracts import FACTS, NOVELTY
from kp_batch.planning.plan import Plan
from kp_batch.run import Run
from kp_batch.warehouse.relations import partitions_of
from kp_batch.warehouse.tables import DeltaTables

# Rows scored at once: some 60 MB. A larger day is scored whole.
_ROWS_AT_ONCE = 65_536


def write_tables(run: Run, plan: Plan, replayed: list[Path]) -> dict[str, int]:
    """Write what changed and commit it: nobody sees it yet.

    Returns:
        The version of each table.
    """
    tables = DeltaTables(run.config.warehouse, run.tables, run.run_id)
    _write_facts(tables, run, plan)
    tables.overwrite("files", [as_frame(plan.ledger.values())])
    tables.overwrite("rejects", [pl.read_parquet(run.staging.rejects, glob=False)])
    tables.overwrite("profiles", [plan.profiles])
    if plan.partitions:
        _write_scores(tables, run, plan, replayed)
    return tables.versions


def _write_facts(tables: DeltaTables, run: Run, plan: Plan) -> None:
    """Add the facts of the content that was read; no ledger names content whose rows are void."""
    counting = [entry.file_id for entry in plan.ledger.values()]
    rows = pl.scan_parquet(run.staging.rows, glob=False).select(list(FACTS))
    rows = rows.filter(pl.col("file_id").is_in(counting))
    first = next(iter(rows.head(1).collect().iter_rows()), None)
    if first is not None:
        tables.append("facts", rows.collect_batches(maintain_order=True))


def _write_scores(tables: DeltaTables, run: Run, plan: Plan, replayed: list[Path]) -> None:
    by_day = partitions_of(run.config.warehouse, "scores", run.tables.get("scores"))
    frames = _rescored(run, plan, by_day, replayed)
    if set(plan.partitions) >= by_day.keys():
        tables.overwrite("scores", frames)
    else:
        tables.overwrite_partitions("scores", frames, plan.partitions)


def _rescored(
    run: Run, plan: Plan, by_day: dict[date, list[Path]], replayed: list[Path]
) -> Iterator[pl.DataFrame]:
    """The rows of the days to be rewritten, in their order."""
    slices = _slices(run, plan)
    for on_timeline, group in groupby(plan.partitions, lambda day: day in slices):
        if on_timeline:
            frames = _from_timeline(run, [slices[day] for day in group], replayed)
        else:
            frames = _as_published([by_day[day] for day in group if day in by_day])
        for rows in frames:
            dated = rows.with_columns(date=pl.col("created_at").dt.date())
            marked = dated.with_columns(in_range=run.in_range("date"))
            yield plan.scorer.rescore(marked, run.run_id).collect()


def _slices(run: Run, plan: Plan) -> dict[date, tuple[int, int]]:
    """Where each day of the timeline begins in it, and how many rows it has."""
    if not run.staging.timeline.exists():
        return {}
    days = (
        pl.scan_parquet(run.staging.timeline, glob=False)
        .select(day=pl.col("created_at").dt.date())
        .with_row_index()
        .group_by("day")
        .agg(first=pl.col("index").min(), rows=pl.len())
        .collect()
    )
    slices: dict[date, tuple[int, int]] = {}
    for day in plan.timeline.days:
        slices[day] = (0, 0)  # such a day may have lost all its rows
    for day, first, rows in days.iter_rows():
        slices[day] = (first, rows)
    return slices


def _from_timeline(
    run: Run, slices: Iterable[tuple[int, int]], replayed: list[Path]
) -> Iterator[pl.LazyFrame]:
    """Rows of the timeline, with the novelty that the replay gave them."""
    for first, rows in _joined(slices):
        part = pl.scan_parquet(run.staging.timeline, glob=False).slice(first, rows)
        if not replayed:
            yield part.with_columns(replayed=False)
            continue
        inside = pl.col("position").is_between(first, first + rows, closed="left")
        met = pl.scan_parquet(replayed, glob=False).filter(inside)
        both = part.with_row_index("position", first).join(
            met, on="position", how="left", suffix="_now", maintain_order="left"
        )
        now = pl.col("novelty_now").is_not_null()
        yield both.with_columns(
            *(pl.when(now).then(f"{name}_now").otherwise(name).alias(name) for name in NOVELTY),
            replayed=now,
        )


def _joined(slices: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join slices that touch, as long as the joined one is not too large."""
    first = rows = 0
    for start, length in slices:
        if rows and (start != first + rows or rows + length > _ROWS_AT_ONCE):
            yield first, rows
            rows = 0
        first, rows = (first if rows else start), rows + length
    if rows:
        yield first, rows


def _as_published(days: list[list[Path]]) -> Iterator[pl.LazyFrame]:
    """Published rows, a few days at a time."""
    held: list[Path] = []
    rows = 0
    for paths in days:
        count = sum(
            pl.scan_parquet(path, glob=False).select(pl.len()).collect().item() for path in paths
        )
        if held and rows + count > _ROWS_AT_ONCE:
            yield _published(held)
            held, rows = [], 0
        held, rows = held + paths, rows + count
    if held:
        yield _published(held)


def _published(paths: list[Path]) -> pl.LazyFrame:
    rows = pl.scan_parquet(paths, glob=False, hive_partitioning=False)
    return rows.sort("created_at", "trace_id").with_columns(replayed=False, facts_changed=False)
