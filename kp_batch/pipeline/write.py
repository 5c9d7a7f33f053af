"""Write the tables; of the scores, only the days in which anything differs."""

from collections.abc import Sequence
from contextlib import closing
from uuid import uuid4

import numpy as np
import polars as pl

from kp_batch.log import progress
from kp_batch.novelty.cache import NO_NEIGHBOUR_ROW
from kp_batch.pipeline.replay_spans import REPLAYED, Replayed
from kp_batch.planning.plan import Plan
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.write_tasks import WriteTask
from kp_batch.runs.run import Run
from kp_batch.schemas import NOVELTY
from kp_batch.steps.step import Executor, step
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.data_files import move_data_file, sink_data_file, write_data_file
from kp_batch.warehouse.file_lists import DataFile


@step("write")
def write_tables(
    run: Run, plan: Plan, replayed: Sequence[Replayed], executor: Executor
) -> Candidate:
    """Write the changes, and publish nothing."""
    candidate = run.candidate
    if facts := plan.scan.facts:
        names = ((path, f"{run.run_id}-{path.stem}") for path in facts)
        moved = [move_data_file(candidate.folder, "facts", *name) for name in names]
        candidate = candidate.change("facts", moved)
    for name in ("files", "profiles"):
        candidate = candidate.overwrite(name, pl.read_parquet(run.staging.table(name), glob=False))
    candidate = write_rejects(run, candidate)
    if run.has_tombstones:  # later traces are replayed
        candidate = candidate.replace_all("tombstones", [])
    if plan.days:
        files: list[DataFile] = []
        with (
            progress("writing", sum(part.rows for part in plan.parts), "trace") as shown,
            closing(executor.map(write_days, plan.parts, run, plan.scorer, replayed)) as written,
        ):
            for part in written:
                files += part
                shown.add(sum(file.rows for file in part))
        candidate = candidate.replace_partitions("scores", files, plan.days)
    return candidate


def write_rejects(run: Run, candidate: Candidate) -> Candidate:
    """Write the staged rejects, which need not fit into memory."""
    rows = pl.scan_parquet(run.staging.table("rejects"), glob=False)
    # A failed run writes them again, in addition to those of its refused candidate.
    file = sink_data_file(candidate.folder, "rejects", rows, f"{run.run_id}-{uuid4().hex}")
    return candidate.replace_all("rejects", [file])


@step("write days")
def write_days(
    part: WriteTask, /, run: Run, scorer: Scorer, replayed: Sequence[Replayed]
) -> list[DataFile]:
    """Score the rows of some days, and write them into files of the run's candidate.

    Returns:
        A file for each day.
    """
    scored = rescored(part, run, scorer, replayed)
    return [
        write_data_file(run.candidate.folder, "scores", day, f"{run.run_id}-{part.name}")
        for day in scored.partition_by("date", maintain_order=True)
    ]


def rescored(
    part: WriteTask, run: Run, scorer: Scorer, replayed: Sequence[Replayed]
) -> pl.DataFrame:
    """Score the rows of some days: a frame of `SCORES`, in replay order."""
    rows = _rows(part, scorer, replayed)
    dated = rows.with_columns(date=pl.col("created_at").dt.date())
    return scorer.rescore(dated, run.run_id).collect()


def _rows(part: WriteTask, scorer: Scorer, replayed: Sequence[Replayed]) -> pl.LazyFrame:
    """Return the rows of a part, with current novelty."""
    first, last = part.ranges[0][0], part.ranges[-1][1]
    files = pl.scan_parquet([*map(str, part.paths)], glob=False, hive_partitioning=False)
    rows = files.slice(first, last - first)
    if not part.on_timeline:
        return rows.with_columns(replayed=False, facts_changed=False)
    chosen = np.zeros(last - first, dtype=np.bool_)
    for begin, end in part.ranges:
        chosen[begin - first : end - first] = True
    own = rows.rename({"replay": "replayed"}).collect().filter(pl.Series(chosen))
    joined = own.lazy()
    if scorer.has_encoder:
        new = _novelty(replayed, own.select("created_at", "trace_id"))
        joined = joined.join(new, on="trace_id", how="left", suffix="_now", maintain_order="left")
    return joined.with_columns(
        pl.when("replayed")
        .then(pl.col(f"{name}_now") if scorer.has_encoder else pl.lit(default, dtype))
        .otherwise(name)
        .alias(name)
        for (name, dtype), default in zip(NOVELTY.items(), NO_NEIGHBOUR_ROW, strict=True)
    )


def _novelty(replayed: Sequence[Replayed], rows: pl.DataFrame) -> pl.LazyFrame:
    """Return the novelty of the replayed traces from the first to the last of some rows."""
    if rows.is_empty():
        return pl.LazyFrame(schema=REPLAYED).drop("created_at")
    (first, first_id), (last, last_id) = rows.row(0), rows.row(-1)
    paths = [span.path for span in replayed if span.first <= last and span.last >= first]
    novelty = pl.scan_parquet(paths, glob=False) if paths else pl.LazyFrame(schema=REPLAYED)
    inside = pl.col("created_at").is_between(first, last)
    if first == last:  # a day of a single time may have many parts
        inside &= pl.col("trace_id").is_between(pl.lit(first_id), pl.lit(last_id))
    return novelty.filter(inside).drop("created_at")
