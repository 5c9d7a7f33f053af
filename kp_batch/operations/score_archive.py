"""Scores an archive by the steps of a run, in a temporary warehouse."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from kp_batch.archive.file_formats.parquet_batches import release_memory
from kp_batch.archive.sources import stat_file
from kp_batch.config import RescoreConfig
from kp_batch.ingest.scan import ArchiveScan, scan_archive, scan_file
from kp_batch.log import warn
from kp_batch.pipeline.rescore import compute_novelty
from kp_batch.pipeline.write import rescored
from kp_batch.planning.explain_plan import describe, future_warnings, profile_warnings
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.scorer import Scorer
from kp_batch.runs.run import Run
from kp_batch.schemas import SCORES
from kp_batch.steps.step import Executor, ThreadExecutor

_THREADS = ThreadExecutor()
_PLACE = ("source_file", "trace_id")


@dataclass(frozen=True)
class ScoredRows:
    """The scores of an archive, as a run would publish them."""

    scores: pl.DataFrame  # `SCORES` in replay order, and the `row` of each trace in its file
    rejects: pl.DataFrame  # `REJECTS`
    counts: Mapping[str, int]  # `RunCounts.numbers`


def score_archive(
    config: RescoreConfig, file: Path | None = None, executor: Executor = _THREADS
) -> ScoredRows:
    """Score an archive. No limit counts, and no audit: whatever is rejected, the others are scored.

    DuckDB and Arrow keep memory for later, which the next step may need: they give it back between
    the steps.

    Args:
        config: complete. Its warehouse is an empty folder, or none: the caller removes it.
        file: the archive, where nobody knows its name: no message has it.
        executor: as for `rescore_and_report`.

    Raises:
        ArchiveError: there is no such archive, or the file is none.
        KpBatchError: there is no such encoder, say.
    """
    run = Run.begin(config, datetime.now(UTC), is_temporary=True)
    scorer = Scorer.of(run)
    run.staging.make()
    if file is None:
        scan = scan_archive(run, executor)
    else:
        scan = scan_file(run, stat_file(str(file)), executor)
    release_memory()
    with run.staging.shared():
        plan = make_plan(run, scan, scorer)
    _warn(run, plan)
    done, replayed = compute_novelty(run, plan, executor)
    release_memory()
    parts = [SCORES.to_frame(), *(rescored(part, run, scorer, replayed) for part in plan.parts)]
    return ScoredRows(
        scores=_with_rows(run, scan, pl.concat(parts)),
        rejects=pl.read_parquet(run.staging.table("rejects"), glob=False),
        counts=done.counts.numbers,
    )


def _warn(run: Run, plan: Plan) -> None:
    description = describe(run, plan)
    for line in (*profile_warnings(description), *future_warnings(description, then="")):
        warn(line)


def _with_rows(run: Run, scan: ArchiveScan, scores: pl.DataFrame) -> pl.DataFrame:
    """Add the row of each trace: of the rows of its file that have its id, the last one counts."""
    files = pl.scan_parquet(run.staging.table("files"), glob=False)
    rows = pl.concat([*_accepted(scan)]).group_by("file_id", "trace_id").agg(pl.col("row").max())
    placed = files.select("file_id", "source_file").join(rows, on="file_id").drop("file_id")
    return scores.lazy().join(placed, on=_PLACE, how="left", maintain_order="left").collect()


def _accepted(scan: ArchiveScan) -> Iterator[pl.LazyFrame]:
    columns = {"file_id": pl.String, "trace_id": pl.String, "row": pl.Int64}
    yield pl.LazyFrame(schema=columns)
    for path in scan.facts:
        facts = pl.scan_parquet(path, glob=False).filter(pl.col("reasons").list.len() == 0)
        yield facts.select(list(columns))
