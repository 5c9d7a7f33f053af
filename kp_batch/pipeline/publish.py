"""What a run leaves: its tables, its row in `runs`, and the catalog that makes them seen."""

import json
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import polars as pl

from kp_batch.contracts import RUNS
from kp_batch.embedding.encoders import ENCODER_VERSION
from kp_batch.facts import FACTS_VERSION
from kp_batch.novelty.settings import REPLAY_VERSION
from kp_batch.pipeline.distributions import distributions
from kp_batch.run import Run
from kp_batch.scoring.profiles import SCORING_VERSION
from kp_batch.warehouse.catalog import Manifest, publish
from kp_batch.warehouse.relations import scan
from kp_batch.warehouse.tables import DeltaTables

_LIBRARIES = ("kp-batch", "polars", "pyarrow", "numpy", "duckdb", "deltalake", "torch")


def publish_success(run: Run, tables: dict[str, int]) -> None:
    """Write the run's rows, then swap the catalog: now everyone sees it."""
    written = DeltaTables(run.config.warehouse, tables, run.run_id)
    written.append("distributions", [distributions(run, tables)])
    _publish(run, Manifest(run.config.threshold, written.versions), "done", None)


def publish_failure(run: Run, reason: str) -> None:
    """Publish the run's row and its rejects beside the scores that were there."""
    tables = DeltaTables(run.config.warehouse, run.published.tables, run.run_id)
    if run.staging.rejects.exists():
        tables.overwrite("rejects", [pl.read_parquet(run.staging.rejects, glob=False)])
    _publish(run, Manifest(run.published.threshold, tables.versions), "failed", reason)


def _publish(run: Run, manifest: Manifest, status: str, reason: str | None) -> None:
    row = {
        "run_id": run.run_id,
        "started_at": run.started_at,
        "finished_at": datetime.now(UTC),
        "status": status,
        "reason": reason,
        "config": run.config.model_dump_json(),
        "inputs": json.dumps(run.inputs),
        "counts": json.dumps(run.counts),
        "seconds": json.dumps(run.seconds),
        "versions": json.dumps(_versions()),
        "fingerprints": json.dumps(_fingerprints(run, manifest)),
        "published": json.dumps(asdict(manifest)),
    }
    tables = DeltaTables(run.config.warehouse, manifest.tables, run.run_id)
    tables.append("runs", [pl.DataFrame([row], schema=RUNS)])
    publish(run.config.warehouse, Manifest(manifest.threshold, tables.versions))


def _fingerprints(run: Run, manifest: Manifest) -> dict[str, dict[str, int]]:
    """How many current scores bear each id of what computed them."""
    ids = ("encoder_id", "cache_id", "profile_id")
    scores = scan(run.config.warehouse, "scores", manifest.tables.get("scores"))
    counts = scores.group_by(ids).len().collect()
    return {
        name: dict(counts.group_by(name).agg(pl.col("len").sum()).sort(name).iter_rows())
        for name in ids
    }


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
