"""Publishes a run: its distributions, its row in `runs`, and the manifest that names its tables."""

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from glob import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.archive.ledger import changed_entries
from kp_batch.duck import sql
from kp_batch.pipeline.write import write_rejects
from kp_batch.planning.plan import Plan
from kp_batch.planning.scorer import FORMULAS, WORDS
from kp_batch.runs.audits import AuditResult
from kp_batch.runs.reasons import Reason
from kp_batch.runs.record import RunCounts, RunRecord, last_done
from kp_batch.runs.run import Run
from kp_batch.schemas import DISTRIBUTIONS, RUNS
from kp_batch.steps.step import step
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.delta import DeltaTables
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.publication import publish
from kp_batch.warehouse.snapshot import PublishedSnapshot, frame_of, manifest_left

# DuckDB spills no states of quantiles: a million domains of ten scores each did not fit at once.
_DOMAINS_AT_ONCE = 100_000
# What a run leaves, and a rollback publishes again; all other tables only grow.
STATE = ("scores", "rejects", "profiles", "files", "facts")
_IDS = ("encoder_id", "cache_id", "profile_id")  # what computed a score
_LIBRARIES = ("kp-batch", "polars", "pyarrow", "numpy", "duckdb", "deltalake", "torch")


@dataclass(frozen=True)
class Written:
    """What a run wrote, and nobody sees yet: all but its row in `runs`."""

    manifest: Manifest
    told: Mapping[str, str | None]  # columns of that row: what the run found and did

    def snapshot(self, run: Run, seconds: Mapping[str, float]) -> PublishedSnapshot:
        """The tables as they would be published; the run's row stands in a staged file."""
        path = run.staging.table("runs")
        _row(run, self, (), seconds).write_parquet(path)
        tables = self.manifest.tables
        return PublishedSnapshot(run.target, tables, self.manifest, beside={"runs": [path]})


@step("write")
def prepare(run: Run, plan: Plan, tables: Mapping[str, int]) -> Written:
    """Write the distributions: what is left is to publish.

    Args:
        run: the run.
        plan: what it did.
        tables: the version of each table as the run has written them.
    """
    written = DeltaTables(run.target, tables, run.run_id)
    # Read once, by Polars: it opens the files of many days in half the time that DuckDB takes.
    scores = PublishedSnapshot(run.target, tables).scan("scores")
    needed = scores.select("task_domain", "score", *_IDS)
    needed.sink_parquet(run.staging.scores, compression="lz4")
    written.append("distributions", _distributions(run, plan))
    told = _done(plan.reasons, plan.counts, _fingerprints(run.staging.scores))
    return Written(
        Manifest(run.config.settings, written.versions), {"inputs": _inputs(run), **told}
    )


def restore(run: Run, target: RunRecord, changes: Sequence[Reason]) -> Written:
    """Write what an earlier run left: a version of each table that names its files once more.

    Args:
        run: the run that does it, whose settings are those of then.
        target: the earlier one, whose files are all there.
        changes: why, for the row of `runs`.
    """
    left, now = manifest_left(target), run.published.tables
    state = {name: version for name, version in left.tables.items() if name in STATE}
    stays = {name: version for name, version in now.items() if name not in STATE}
    tables = DeltaTables(run.target, state | stays, run.run_id)
    for name in state:
        tables.undo_unpublished(name)  # what was published since, too
    of_target = run.snapshot.scan("distributions").filter(run_id=target.run_id).collect()
    tables.append("distributions", of_target.with_columns(run_id=pl.lit(run.run_id)))
    counts = target.counts.without_work if target.counts else None
    told = {
        "inputs": _changed(run.snapshot.as_of(target).scan("files").collect(), run),
        **_done(changes, counts, target.fingerprints),
        "versions": json.dumps(dict(target.versions)),
    }
    return Written(Manifest(left.settings, tables.versions), told)


@step("publish")
def publish_success(
    run: Run, written: Written, audits: Sequence[AuditResult], seconds: Mapping[str, float]
) -> None:
    """Publish: from then on, everyone sees the run.

    Args:
        run: the run.
        written: what it wrote.
        audits: what its audits found.
        seconds: what each step took, by its name.
    """
    _publish(run, written, audits, seconds)


def publish_failure(
    run: Run,
    plan: Plan | None,
    audits: Sequence[AuditResult],
    seconds: Mapping[str, float],
    reason: str,
) -> None:
    """Publish the run's row and its rejects beside the scores that were there.

    Args:
        run: the run.
        plan: what it would have done; None if it failed before it had one.
        audits: what its audits found; empty where it failed before.
        seconds: what each step took, by its name.
        reason: why it failed, in one line.
    """
    tables = DeltaTables(run.target, run.published.tables, run.run_id)
    if run.staging.table("rejects").exists():
        write_rejects(run, tables)
    last = last_done(run.snapshot.runs())
    fingerprints = last.fingerprints if last else {name: {} for name in _IDS}
    told = {
        "inputs": _inputs(run),
        **_done(plan.reasons if plan else (), plan.counts if plan else None, fingerprints),
        "status": "failed",
        "reason": reason,
    }
    manifest = Manifest(run.published.settings, tables.versions, failed=True)
    _publish(run, Written(manifest, told), audits, seconds)


def _done(
    changes: Iterable[Reason], counts: RunCounts | None, fingerprints: Mapping[str, Any]
) -> dict[str, str | None]:
    """Columns of the row of a run that is done, three of them JSON."""
    return {
        "changes": json.dumps([asdict(change) for change in changes]),
        "counts": json.dumps(asdict(counts) if counts else {}),
        "fingerprints": json.dumps(fingerprints),
        "status": "done",
        "reason": None,
    }


def _inputs(run: Run) -> str:
    """The files whose status or content is not as the last run left it, as JSON."""
    staged = run.staging.table("files")
    if not staged.exists():  # it failed before it had looked
        return "[]"
    return _changed(pl.read_parquet(staged, glob=False), run)


def _changed(files: pl.DataFrame, run: Run) -> str:
    """Of a ledger the files that are not as the last run left them, as JSON."""
    changed = changed_entries(files, run.snapshot.scan("files").collect())
    return changed.select("source_file", "status", "size", "mtime_ns", "file_id").write_json()


def _distributions(run: Run, plan: Plan) -> pl.DataFrame:
    """Distribution of the scores by domain, and of all of them: a frame of `DISTRIBUTIONS`."""
    query = sql(__name__, "distributions.sql")
    values = {"run_id": run.run_id, "threshold": run.config.threshold}
    with run.staging.connect(scores=plan.counts.accepted) as connection:
        create_macros(connection)
        connection.read_parquet(escape(str(run.staging.scores))).create_view("scores")

        def ask(part: int | None, parts: int) -> pl.DataFrame:
            given = {**values, "part": part, "parts": parts}
            return frame_of(connection.sql(query, params=given))

        of_all = ask(None, 1)
        parts = -(-int(of_all.get_column("domains").sum()) // _DOMAINS_AT_ONCE)
        found = [of_all, *(ask(part, parts) for part in range(parts))]
    rows = (each.select(list(DISTRIBUTIONS)).cast(DISTRIBUTIONS) for each in found)
    return pl.concat(rows).sort("task_domain")


def _publish(
    run: Run, written: Written, audits: Sequence[AuditResult], seconds: Mapping[str, float]
) -> None:
    tables = DeltaTables(run.target, written.manifest.tables, run.run_id)
    tables.append("runs", _row(run, written, audits, seconds))
    publish(run.target, replace(written.manifest, tables=tables.versions))


def _row(
    run: Run, written: Written, audits: Sequence[AuditResult], seconds: Mapping[str, float]
) -> pl.DataFrame:
    """The run's row in `runs`, which is written once it has ended."""
    row = {
        "run_id": run.run_id,
        "started_at": run.started_at,
        "finished_at": datetime.now(UTC),
        "config": run.config.model_dump_json(),
        "seconds": json.dumps(dict(seconds)),
        "versions": json.dumps(_versions()),
        "published": json.dumps(asdict(written.manifest)),
        # Not the rows that they found, which may hold what is forgotten later.
        "audits": json.dumps([_without_rows(audit) for audit in audits]),
        **written.told,
    }
    return pl.DataFrame([row], schema=RUNS)


def _without_rows(found: AuditResult) -> dict[str, Any]:
    return {name: value for name, value in asdict(found).items() if name != "first"}


def _fingerprints(scores: Path) -> dict[str, dict[str, int]]:
    """How many scores bear each id of what computed them."""
    counts = pl.scan_parquet(scores, glob=False).group_by(_IDS).len().collect(engine="streaming")
    return {
        name: dict(counts.group_by(name).agg(pl.col("len").sum()).sort(name).iter_rows())
        for name in _IDS
    }


def _versions() -> dict[str, str | int]:
    """The versions of the formulas and messages, and of the libraries that computed them."""
    return {
        **FORMULAS,
        **WORDS,
        "python": platform.python_version(),
        **{name: found for name in _LIBRARIES if (found := _installed(name))},
    }


@cache
def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
