"""Prepare a run's publication: its distributions, its row in `runs`, and its manifest.

`warehouse.publication` then publishes the manifest.
"""

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PanicException

from kp_batch.archive.ledger import changed_entries
from kp_batch.archive.sources import in_full
from kp_batch.duck import escaped, frame_of, sql
from kp_batch.log import warn
from kp_batch.pipeline.write import write_rejects
from kp_batch.planning.plan import Plan
from kp_batch.planning.scorer import FORMULAS, MESSAGES
from kp_batch.runs.run import Run
from kp_batch.schemas import DISTRIBUTIONS, RUNS
from kp_batch.steps.step import step
from kp_batch.text import one_line
from kp_batch.warehouse.audits import AuditResult
from kp_batch.warehouse.author import current_user
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.publication import publish
from kp_batch.warehouse.reasons import Reason
from kp_batch.warehouse.run_record import RunCounts, RunRecord, last_done
from kp_batch.warehouse.snapshot import PublishedSnapshot

# DuckDB cannot spill quantiles: those of a million domains of ten scores did not fit at once.
DOMAINS_PER_QUERY = 100_000
# The tables that a rollback restores; all others only grow.
STATE = ("scores", "rejects", "profiles", "files", "facts", "tombstones")
_IDS = ("encoder_id", "cache_id", "profile_id")
_LIBRARIES = ("kp-batch", "polars", "pyarrow", "numpy", "duckdb", "deltalake", "torch")


@dataclass(frozen=True)
class Written:
    """What a run will publish, except its row in `runs`."""

    candidate: Candidate
    settings: Mapping[str, Any]  # of the scores
    columns: Mapping[str, str | None]  # some of its row's columns
    failed: bool = False

    def with_row(
        self, run: Run, audits: Sequence[AuditResult], seconds: Mapping[str, float]
    ) -> Candidate:
        """Return the candidate with the run's row, which is written once the run has ended."""
        return self.candidate.append("runs", _row(run, self, audits, seconds))

    def keep(self, run: Run, audits: Sequence[AuditResult], seconds: Mapping[str, float]) -> None:
        """Keep the candidate for queries, unpublished; a failure to do so does not fail the run."""
        try:
            self.with_row(run, audits, seconds).keep(self.settings)
        except (Exception, PanicException) as error:  # noqa: BLE001 (what audits found counts)
            warn(f"the candidate could not be kept: {one_line(str(error))}")

    def snapshot(self, run: Run, seconds: Mapping[str, float]) -> PublishedSnapshot:
        """The tables as they would be published, with the run's row."""
        return self.with_row(run, (), seconds).snapshot(self.settings)


@step("write")
def prepare(run: Run, plan: Plan, candidate: Candidate) -> Written:
    """Write the distributions, and return what the run can then publish."""
    # Polars reads them once: it opens the files of many days in half of DuckDB's time.
    needed = (
        candidate.snapshot(run.config.settings).scan("scores").select("task_domain", "score", *_IDS)
    )
    needed.sink_parquet(run.staging.scores, compression="lz4")
    written = candidate.append("distributions", _distributions(run, plan))
    columns = _done_columns(plan.reasons, plan.counts, _fingerprints(run.staging.scores))
    return Written(written, run.config.settings, {"inputs": _inputs(run), **columns})


def restore(run: Run, target: RunRecord, changes: Sequence[Reason]) -> Written:
    """Give the tables the files that they had after an earlier run; all of these still exist."""
    manifest, candidate = run.snapshot.manifest_after(target), run.candidate
    for name in STATE:
        candidate = candidate.as_in(name, manifest)
    of_target = run.snapshot.scan("distributions").filter(run_id=target.run_id).collect()
    candidate = candidate.append("distributions", of_target.with_columns(run_id=pl.lit(run.run_id)))
    counts = target.counts.without_work if target.counts else None
    columns = {
        # A file that only later runs have read counts as neither gone nor pruned.
        "inputs": _changed(run.snapshot.as_of(target).scan("files").collect(), run, "unread"),
        **_done_columns(changes, counts, target.fingerprints),
        "versions": json.dumps(dict(target.versions)),
    }
    return Written(candidate, manifest.settings, columns)


@step("publish")
def publish_success(
    run: Run, written: Written, audits: Sequence[AuditResult], seconds: Mapping[str, float]
) -> None:
    """Publish the run, with the seconds of each step: from then on, everybody sees it."""
    _publish(run, written, audits, seconds)


def publish_failure(
    run: Run,
    plan: Plan | None,
    audits: Sequence[AuditResult],
    seconds: Mapping[str, float],
    reason: str,
) -> None:
    """Publish the row and the rejects of a failed run; the scores stay.

    The reason is one line. A run that failed early has neither plan nor audits.
    """
    candidate = Candidate(run.config.warehouse, run.published, run.run_id)
    if run.staging.table("rejects").exists():
        candidate = write_rejects(run, candidate)
    last = last_done(run.snapshot.runs())
    fingerprints = last.fingerprints if last else {name: {} for name in _IDS}
    columns = {
        "inputs": _inputs(run),
        **_done_columns(plan.reasons if plan else (), plan.counts if plan else None, fingerprints),
        "status": "failed",
        "reason": reason,
    }
    written = Written(candidate, run.published.settings, columns, failed=True)
    _publish(run, written, audits, seconds)


def publish_ledger(run: Run) -> None:
    """Publish only the staged ledger, if a run has nothing else to do.

    Otherwise each run would compare again the files with a new version and the same content.
    """
    files = pl.read_parquet(run.staging.table("files"), glob=False)
    candidate = run.candidate.overwrite("files", files)
    publish(candidate, run.published.settings, failed=run.published.failed)


def _done_columns(
    changes: Iterable[Reason], counts: RunCounts | None, fingerprints: Mapping[str, Any]
) -> dict[str, str | None]:
    """Return columns of the row of a successful run; three of them are JSON."""
    return {
        "changes": json.dumps([asdict(change) for change in changes]),
        "counts": json.dumps(asdict(counts) if counts else {}),
        "fingerprints": json.dumps(fingerprints),
        "status": "done",
        "reason": None,
    }


def _inputs(run: Run) -> str:
    """Return the changed files of the staged ledger, as JSON."""
    staged = run.staging.table("files")
    if not staged.exists():  # the run failed before the scan
        return "[]"
    return _changed(pl.read_parquet(staged, glob=False), run)


def _changed(files: pl.DataFrame, run: Run, left_out: str = "gone") -> str:
    """Return the files of a ledger whose status or content differs from the published, as JSON."""
    changed = changed_entries(files, run.snapshot.scan("files").collect(), left_out=left_out)
    return changed.select("source_file", "status", "size", "mtime_ns", "file_id").write_json()


def _distributions(run: Run, plan: Plan) -> pl.DataFrame:
    """Return the distributions of scores, by domain and overall: a frame of `DISTRIBUTIONS`."""
    query = sql(__name__, "distributions.sql")
    values = {"run_id": run.run_id, "threshold": run.config.threshold}
    with run.staging.connect(scores=plan.counts.accepted) as connection:
        create_macros(connection, "distribution")
        connection.read_parquet(escaped(run.staging.scores)).create_view("scores")

        def rows_of(part: int | None, parts: int) -> pl.DataFrame:
            return frame_of(connection.sql(query, params={**values, "part": part, "parts": parts}))

        of_all = rows_of(None, 1)
        parts = -(-int(of_all.get_column("domains").sum()) // DOMAINS_PER_QUERY)
        frames = [of_all, *(rows_of(part, parts) for part in range(parts))]
    rows = (frame.select(list(DISTRIBUTIONS)).cast(DISTRIBUTIONS) for frame in frames)
    return pl.concat(rows).sort("task_domain")


def _publish(
    run: Run, written: Written, audits: Sequence[AuditResult], seconds: Mapping[str, float]
) -> None:
    candidate = written.with_row(run, audits, seconds)
    publish(candidate, written.settings, failed=written.failed)


def _row(
    run: Run, written: Written, audits: Sequence[AuditResult], seconds: Mapping[str, float]
) -> pl.DataFrame:
    """Return the run's row in `runs`, which is written once the run has ended."""
    # Absolute, because readers may be in another folder; see `last_config`.
    archive = tuple(map(in_full, run.config.archive))
    config = run.config.model_copy(update={"archive": archive})
    row = {
        "run_id": run.run_id,
        "started_at": run.started_at,
        "finished_at": datetime.now(UTC),
        "note": run.config.note,
        "user": current_user(),
        "config": config.model_dump_json(exclude={"note"}),
        "seconds": json.dumps(dict(seconds)),
        "versions": json.dumps(_versions()),
        "published": json.dumps(
            {
                "publication": written.candidate.name,
                "number": written.candidate.number,
                "settings": written.settings,
            }
        ),
        # Without their rows, which may contain what is forgotten later.
        "audits": json.dumps([_without_rows(result) for result in audits]),
        **written.columns,
    }
    return pl.DataFrame([row], schema=RUNS)


def _without_rows(result: AuditResult) -> dict[str, Any]:
    return {name: value for name, value in asdict(result).items() if name != "first"}


def _fingerprints(scores: Path) -> dict[str, dict[str, int]]:
    """Return the number of scores with each id of an encoder, a cache and a profile."""
    counts = pl.scan_parquet(scores, glob=False).group_by(_IDS).len().collect(engine="streaming")
    return {
        name: dict(counts.group_by(name).agg(pl.col("len").sum()).sort(name).iter_rows())
        for name in _IDS
    }


def _versions() -> dict[str, str | int]:
    """Return the versions of formulas, messages and libraries."""
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
