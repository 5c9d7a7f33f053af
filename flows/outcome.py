"""What a run leaves: its tables, its row in `runs`, and the catalog that makes them seen."""

import json
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import quote
from typing import Any
from uuid import uuid4

import polars as pl

from flows.intake import Reading
from flows.stage import Stage
from kp_batch.archive.sources import SourceFile
from kp_batch.config import RescoreConfig, format_ttl
from kp_batch.contracts import PROFILES, RUNS, SCORES
from kp_batch.embedding.encoders import ENCODER_VERSION
from kp_batch.errors import ArchiveError
from kp_batch.facts import FACTS_VERSION
from kp_batch.novelty.replay import REPLAY_VERSION
from kp_batch.scoring.composite import composite, dimensions, overrides, score
from kp_batch.scoring.profiles import SCORING_VERSION, WeightProfile
from kp_batch.warehouse.catalog import Manifest, publish
from kp_batch.warehouse.tables import DeltaTables

_LIBRARIES = ("kp-batch", "polars", "pyarrow", "numpy", "duckdb", "deltalake", "torch")


@dataclass
class Run:
    """What is known of a run while it goes on."""

    config: RescoreConfig
    run_id: str
    started_at: datetime
    inputs: list[SourceFile] = field(default_factory=list["SourceFile"])
    counts: dict[str, Any] = field(default_factory=dict[str, Any])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def begin(cls, config: RescoreConfig) -> "Run":
        """A new run, named by its start so that names sort by time."""
        now = datetime.now(UTC)
        return cls(config, f"{now:%Y%m%dT%H%M%SZ}-{uuid4().hex[:6]}", now)

    def count(self, reading: Reading, accepted: int, rejects: dict[str, int]) -> None:
        """Take down what became of the archive's rows."""
        superseded = rejects.get("superseded", 0)
        self.counts = {
            "files": len(self.inputs),
            "unreadable_files": [file.source_file for file in reading.unreadable],
            "rows": reading.rows,
            "accepted": accepted,
            "duplicates": reading.rows - accepted - superseded - reading.rejected,
            "superseded": superseded,
            "rejected": reading.rejected,
            "rejected_by_code": rejects,
        }

    @property
    def stage(self) -> Stage:
        """Its working files."""
        return Stage(self.config.warehouse / "staging" / self.run_id)


def check_rejects(run: Run) -> None:
    """Refuse to go on with too little of the archive.

    Raises:
        ArchiveError: too large a share of the rows is rejected, or none is acceptable.
    """
    rows, rejected, limit = run.counts["rows"], run.counts["rejected"], run.config.max_reject_share
    codes = ", ".join(f"{code} {count}" for code, count in run.counts["rejected_by_code"].items())
    look = f"see: kp-batch sql 'FROM rejects' --warehouse {quote(str(run.config.warehouse))}"
    if run.counts["accepted"] == 0:
        raise ArchiveError(
            f"none of the archive's {rows} rows in {len(run.inputs)} files can be scored "
            f"({codes or 'it is empty'}); no scores are published; {look}"
        )
    if rejected > limit * rows:
        raise ArchiveError(
            f"{rejected} of {rows} rows are rejected, more than --max-reject-share {limit} allows "
            f"({codes}); no scores are published; {look}"
        )


def write_tables(
    run: Run,
    published: Manifest,
    encoder_id: str,
    profiles: dict[str, WeightProfile],
    replayed: list[Path],
) -> dict[str, int]:
    """Score what was replayed and commit scores, rejects and profiles: nobody sees them yet.

    Returns:
        The version of each table.
    """
    scores = _scores(run, encoder_id, profiles, replayed)
    borne = scores.select("profile_id").unique().collect().get_column("profile_id")
    tables = DeltaTables(run.config.warehouse, published.tables)
    tables.overwrite("scores", scores, run.run_id)
    tables.overwrite("rejects", pl.scan_parquet(run.stage.rejects, glob=False), run.run_id)
    rows = [
        {"profile_id": each.profile_id, **asdict(each)}
        for each in profiles.values()
        if each.profile_id in borne
    ]
    tables.overwrite("profiles", pl.LazyFrame(rows, schema=PROFILES), run.run_id)
    return tables.versions


def publish_success(run: Run, tables: dict[str, int]) -> None:
    """Write the run's row, then swap the catalog: now everyone sees it."""
    _publish(run, Manifest(run.config.threshold, tables), "done", None)


def publish_failure(run: Run, published: Manifest, reason: str) -> None:
    """Publish the run's row and its rejects beside the scores that were there."""
    tables = DeltaTables(run.config.warehouse, published.tables)
    if run.stage.rejects.exists():
        tables.overwrite("rejects", pl.scan_parquet(run.stage.rejects, glob=False), run.run_id)
    _publish(run, Manifest(published.threshold, tables.versions), "failed", reason)


def _scores(
    run: Run, encoder_id: str, profiles: dict[str, WeightProfile], replayed: list[Path]
) -> pl.LazyFrame:
    config = run.config
    ids = {
        "run_id": run.run_id,
        "encoder_id": encoder_id,
        "cache_id": f"fifo-{config.cache_size}-ttl-{format_ttl(config.ttl)}-v{REPLAY_VERSION}",
    }
    return (
        pl.scan_parquet(replayed, glob=False)
        .with_columns(
            *dimensions(),
            *overrides(),
            *(pl.lit(value).alias(name) for name, value in ids.items()),
            date=pl.col("created_at").dt.date(),
        )
        .with_columns(composite(profiles))
        .with_columns(score())
        .select(list(SCORES))
    )


def _publish(run: Run, manifest: Manifest, status: str, reason: str | None) -> None:
    row = {
        "run_id": run.run_id,
        "started_at": run.started_at,
        "finished_at": datetime.now(UTC),
        "status": status,
        "reason": reason,
        "config": run.config.model_dump_json(),
        "inputs": json.dumps([asdict(source) for source in run.inputs]),
        "counts": json.dumps(run.counts),
        "seconds": json.dumps(run.seconds),
        "versions": json.dumps(_versions()),
        "published": json.dumps(asdict(manifest)),
    }
    tables = DeltaTables(run.config.warehouse, manifest.tables)
    tables.append("runs", pl.LazyFrame([row], schema=RUNS), run.run_id)
    publish(run.config.warehouse, Manifest(manifest.threshold, tables.versions))


def _versions() -> dict[str, Any]:
    """Of the formulas, and of what computed them."""
    return {
        "facts": FACTS_VERSION,
        "encoder": ENCODER_VERSION,
        "replay": REPLAY_VERSION,
        "scoring": SCORING_VERSION,
        "python": platform.python_version(),
        **{name: found for name in _LIBRARIES if (found := _installed(name))},
    }


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
