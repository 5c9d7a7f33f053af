"""Score an archive by the steps of a run, in a temporary warehouse."""

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
from kp_batch.steps.step import ThreadExecutor

_THREADS = ThreadExecutor()
_PLACE = ("source_file", "trace_id")


@dataclass(frozen=True)
class ScoredRows:
    """The scores of an archive, as a run would publish them."""

    scores: pl.DataFrame  # `SCORES` in replay order, and the `row` of each trace in its file
    rejects: pl.DataFrame  # `REJECTS`
    counts: Mapping[str, int]  # `RunCounts.numbers`


def score_archive(config: RescoreConfig, file: Path | None = None) -> ScoredRows:
    """Score an archive, without limits and audits: rejected rows do not stop the others.

    DuckDB and Arrow return unused memory between the steps, because the next step may need it.

    Args:
        config: a complete config. Its warehouse is an empty or missing folder, which the caller
            removes.
        file: the archive, if messages must not name it.

    Raises:
        ArchiveError: there is no such archive, or the file is of another kind.
        KpBatchError: there is no such encoder, for example.
    """
    run = Run.begin(config, datetime.now(UTC), is_temporary=True)
    scorer = Scorer.of(run)
    run.staging.make()
    if file is None:
        scan = scan_archive(run, _THREADS)
    else:
        scan = scan_file(run, stat_file(str(file)), _THREADS)
    release_memory()
    with run.staging.shared():
        plan = make_plan(run, scan, scorer)
    _warn(run, plan)
    done, replayed = compute_novelty(run, plan, _THREADS)
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
    """Add the row of each trace: the last one in its file with its id."""
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
