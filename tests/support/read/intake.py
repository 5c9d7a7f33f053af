"""What taking in an archive comes to."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.ingest.scan import scan_archive
from kp_batch.planning.excess import exceeded_limits
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.scorer import Scorer
from kp_batch.runs.run import Run
from kp_batch.schemas import FACTS
from kp_batch.steps.step import ThreadExecutor


@dataclass(frozen=True)
class Intake:
    """What taking in an archive came to."""

    run: Run
    plan: Plan
    rows: pl.DataFrame
    timeline: pl.DataFrame
    rejects: pl.DataFrame

    @property
    def counts(self) -> dict[str, int]:
        """How many rows and files bear each code."""
        return self.plan.counts.rejected_by_code

    @property
    def totals(self) -> tuple[int, int, int]:
        """The rows of the readable files, and how many of them are accepted and rejected."""
        counts = self.plan.counts
        return counts.rows, counts.accepted, counts.rejected

    @property
    def ids(self) -> list[str]:
        return self.timeline["trace_id"].to_list()

    @property
    def refused(self) -> list[tuple[str, int | None, str | None, list[str]]]:
        columns = self.rejects.select("source_file", "row", "trace_id", "reasons")
        return [(Path(file).name, *rest) for file, *rest in columns.rows()]


def take_in(folder: Path, *archive: Path | str) -> Intake:
    """Take in the archive, by default all of the folder's, as a first run into it does."""
    config = RescoreConfig(
        archive=tuple(map(str, archive or [folder])),
        warehouse=folder / "_warehouse",
        embedder="none",
        max_reject_share="100%",
    )
    run = Run.begin(config, datetime.now(UTC))
    run.staging.make()
    scan = scan_archive(run, ThreadExecutor())
    plan = make_plan(run, scan, Scorer.of(run))
    if plan.counts.accepted:
        assert exceeded_limits(run, plan.counts, plan.limit_inputs) is None
    else:
        assert str(exceeded_limits(run, plan.counts, plan.limit_inputs)).startswith(
            "none of the archive's"
        )
    timeline = pl.read_parquet(run.staging.timeline, glob=False)
    assert plan.counts.accepted == len(timeline)
    staged = [pl.read_parquet(path, glob=False) for path in scan.facts]
    rows = pl.concat([FACTS.to_frame(), *staged])
    rejects = pl.read_parquet(run.staging.table("rejects"), glob=False)
    return Intake(run, plan, rows, timeline, rejects)
