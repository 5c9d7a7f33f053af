"""Publishes a run: its distributions, its row in `runs`, and the catalog that shows its tables."""

import json
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

import polars as pl

from kp_batch.contracts import DISTRIBUTIONS, RUNS
from kp_batch.embedding.encoders import ENCODER_VERSION
from kp_batch.facts import FACTS_VERSION
from kp_batch.novelty.settings import REPLAY_VERSION
from kp_batch.run import Run
from kp_batch.scoring.profiles import SCORING_VERSION
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.publication import publish
from kp_batch.warehouse.relations import frame_of, relation, scan
from kp_batch.warehouse.tables import DeltaTables

_LIBRARIES = ("kp-batch", "polars", "pyarrow", "numpy", "duckdb", "deltalake", "torch")


def publish_success(run: Run, tables: dict[str, int]) -> None:
    """Write the run's rows, then swap the catalog: from then on, everyone sees the run."""
    written = DeltaTables(run.config.warehouse, tables, run.run_id)
    written.append("distributions", [_distributions(run, tables)])
    _publish(run, Manifest(run.config.threshold, written.versions), "done", None)


def publish_failure(run: Run, reason: str) -> None:
    """Publish the run's row and its rejects beside the scores that were there."""
    tables = DeltaTables(run.config.warehouse, run.published.tables, run.run_id)
    if run.staging.rejects.exists():
        tables.overwrite("rejects", [pl.read_parquet(run.staging.rejects, glob=False)])
    _publish(run, Manifest(run.published.threshold, tables.versions), "failed", reason)


def _distributions(run: Run, tables: dict[str, int]) -> pl.DataFrame:
    """Distribution of the scores by domain, and of all of them: a frame of `DISTRIBUTIONS`.

    Args:
        run: the run that leaves them.
        tables: the version of each table as the run leaves it.
    """
    scores = relation(run.config.warehouse, "scores", tables.get("scores"))
    query = files("kp_batch.pipeline").joinpath("distributions.sql").read_text("utf-8")
    values = {"run_id": run.run_id, "threshold": run.config.threshold}
    with run.staging.connect() as connection:
        create_macros(connection)
        connection.execute(f"CREATE VIEW scores AS FROM {scores}")
        found = frame_of(connection.sql(query, params=values))
    return found.select(list(DISTRIBUTIONS)).cast(DISTRIBUTIONS)


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
    """The versions of the formulas, and of the libraries that computed them."""
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
