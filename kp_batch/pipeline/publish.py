"""Prepares a run's publication: its distributions, its row in `runs`, and its manifest.

`warehouse.publication` then publishes the manifest.
"""

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
from kp_batch.archive.sources import in_full
from kp_batch.duck import sql
from kp_batch.pipeline.write import write_rejects
from kp_batch.planning.plan import Plan
from kp_batch.planning.scorer import FORMULAS, MESSAGES
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
from kp_batch.warehouse.snapshot import PublishedSnapshot, frame_of, manifest_after

# DuckDB spills no states of quantiles: a million domains of ten scores each did not fit at once.
_DOMAINS_AT_ONCE = 100_000
# The tables that a rollback publishes again; all others only grow.
STATE = ("scores", "rejects", "profiles", "files", "facts")
_IDS = ("encoder_id", "cache_id", "profile_id")
_LIBRARIES = ("kp-batch", "polars", "pyarrow", "numpy", "duckdb", "deltalake", "torch")


@dataclass(frozen=True)
class Written:
    """The tables that a run wrote, not published yet: all but its row in `runs`."""

    manifest: Manifest
    columns: Mapping[str, str | None]  # some of that row

    def snapshot(self, run: Run, seconds: Mapping[str, float]) -> PublishedSnapshot:
        """The tables as they would be published, with the run's row in a staged file."""
        path = run.staging.table("runs")
        _row(run, self, (), seconds).write_parquet(path)
        tables = self.manifest.tables
        return PublishedSnapshot(run.target, tables, self.manifest, staged={"runs": [path]})


@step("write")
def prepare(run: Run, plan: Plan, tables: Mapping[str, int]) -> Written:
    """Write the distributions beside the tables of a plan, after which the run can be published."""
    written = DeltaTables(run.target, tables, run.run_id)
    # Read once, by Polars: it opens the files of many days in half the time that DuckDB takes.
    scores = PublishedSnapshot(run.target, tables).scan("scores")
    needed = scores.select("task_domain", "score", *_IDS)
    needed.sink_parquet(run.staging.scores, compression="lz4")
    written.append("distributions", _distributions(run, plan))
    columns = _done_columns(plan.reasons, plan.counts, _fingerprints(run.staging.scores))
    manifest = Manifest(run.config.settings, written.versions)
    return Written(manifest, {"inputs": _inputs(run), **columns})


def restore(run: Run, target: RunRecord, changes: Sequence[Reason]) -> Written:
    """Write the tables of an earlier run: a version of each that names its files once more.

    The target is the earlier one, whose files are all there, and whose settings the run has.
    """
    manifest = manifest_after(target)
    state = {name: version for name, version in manifest.tables.items() if name in STATE}
    others = {name: version for name, version in run.published.tables.items() if name not in STATE}
    tables = DeltaTables(run.target, state | others, run.run_id)
    for name in state:
        tables.undo_unpublished(name)  # versions published since, too
    of_target = run.snapshot.scan("distributions").filter(run_id=target.run_id).collect()
    tables.append("distributions", of_target.with_columns(run_id=pl.lit(run.run_id)))
    counts = target.counts.without_work if target.counts else None
    columns = {
        # A file that only later runs have read is neither gone nor pruned.
        "inputs": _changed(run.snapshot.as_of(target).scan("files").collect(), run, "unread"),
        **_done_columns(changes, counts, target.fingerprints),
        "versions": json.dumps(dict(target.versions)),
    }
    return Written(Manifest(manifest.settings, tables.versions), columns)


@step("publish")
def publish_success(
    run: Run, written: Written, audits: Sequence[AuditResult], seconds: Mapping[str, float]
) -> None:
    """Publish: from then on, everyone sees the run, with the seconds of each step by its name."""
    _publish(run, written, audits, seconds)


def publish_failure(
    run: Run,
    plan: Plan | None,
    audits: Sequence[AuditResult],
    seconds: Mapping[str, float],
    reason: str,
) -> None:
    """Publish the row and the rejects of a failed run; the scores stay.

    The reason is one line. There is no plan, and no audit, where it failed before that.
    """
    tables = DeltaTables(run.target, run.published.tables, run.run_id)
    tables.undo_all()  # the scores that an audit refused, say
    if run.staging.table("rejects").exists():
        write_rejects(run, tables)
    last = last_done(run.snapshot.runs())
    fingerprints = last.fingerprints if last else {name: {} for name in _IDS}
    columns = {
        "inputs": _inputs(run),
        **_done_columns(plan.reasons if plan else (), plan.counts if plan else None, fingerprints),
        "status": "failed",
        "reason": reason,
    }
    manifest = Manifest(run.published.settings, tables.versions, failed=True)
    _publish(run, Written(manifest, columns), audits, seconds)


def publish_ledger(run: Run) -> None:
    """Publish the staged ledger alone, where a run has nothing to do.

    So files with another version and the same content are not compared again each time.
    """
    tables = DeltaTables(run.target, run.published.tables, run.run_id)
    tables.overwrite("files", pl.read_parquet(run.staging.table("files"), glob=False))
    publish(run.target, replace(run.published, tables=tables.versions))


def _done_columns(
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
    """The files of the staged ledger that have changed, as JSON."""
    staged = run.staging.table("files")
    if not staged.exists():  # it failed before the scan
        return "[]"
    return _changed(pl.read_parquet(staged, glob=False), run)


def _changed(files: pl.DataFrame, run: Run, left_out: str = "gone") -> str:
    """The files of a ledger with another status or content than published, as JSON."""
    changed = changed_entries(files, run.snapshot.scan("files").collect(), left_out=left_out)
    return changed.select("source_file", "status", "size", "mtime_ns", "file_id").write_json()


def _distributions(run: Run, plan: Plan) -> pl.DataFrame:
    """The distributions of the scores, by domain and over all: a frame of `DISTRIBUTIONS`."""
    query = sql(__name__, "distributions.sql")
    values = {"run_id": run.run_id, "threshold": run.config.threshold}
    with run.staging.connect(scores=plan.counts.accepted) as connection:
        create_macros(connection)
        connection.read_parquet(escape(str(run.staging.scores))).create_view("scores")

        def rows_of(part: int | None, parts: int) -> pl.DataFrame:
            return frame_of(connection.sql(query, params={**values, "part": part, "parts": parts}))

        of_all = rows_of(None, 1)
        parts = -(-int(of_all.get_column("domains").sum()) // _DOMAINS_AT_ONCE)
        frames = [of_all, *(rows_of(part, parts) for part in range(parts))]
    rows = (frame.select(list(DISTRIBUTIONS)).cast(DISTRIBUTIONS) for frame in frames)
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
    # Who reads them may be in another folder: see `last_config`.
    archive = tuple(map(in_full, run.config.archive))
    row = {
        "run_id": run.run_id,
        "started_at": run.started_at,
        "finished_at": datetime.now(UTC),
        "config": run.config.model_copy(update={"archive": archive}).model_dump_json(),
        "seconds": json.dumps(dict(seconds)),
        "versions": json.dumps(_versions()),
        "published": json.dumps(asdict(written.manifest)),
        # Without their rows, which may hold what is forgotten later.
        "audits": json.dumps([_without_rows(result) for result in audits]),
        **written.columns,
    }
    return pl.DataFrame([row], schema=RUNS)


def _without_rows(result: AuditResult) -> dict[str, Any]:
    return {name: value for name, value in asdict(result).items() if name != "first"}


def _fingerprints(scores: Path) -> dict[str, dict[str, int]]:
    """The number of scores with each id of an encoder, a cache and a profile."""
    counts = pl.scan_parquet(scores, glob=False).group_by(_IDS).len().collect(engine="streaming")
    return {
        name: dict(counts.group_by(name).agg(pl.col("len").sum()).sort(name).iter_rows())
        for name in _IDS
    }


def _versions() -> dict[str, str | int]:
    """The versions of the formulas and messages, and of the libraries that computed them."""
    return {
        **FORMULAS,
        **MESSAGES,
        "python": platform.python_version(),
        **{name: version for name in _LIBRARIES if (version := _version(name))},
    }


@cache
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
