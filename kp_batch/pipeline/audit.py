"""Run audits over the tables that a run is about to publish, or over published ones.

An audit also sees the tables that were published before.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import duckdb

from kp_batch.errors import SettingError, WarehouseError, is_passing
from kp_batch.log import warn
from kp_batch.runs.run import Run
from kp_batch.steps.step import step
from kp_batch.text import one_line
from kp_batch.warehouse.audits import (
    Audit,
    AuditResult,
    AuditResults,
    parse_audits,
    refuse_failed,
    warning_text,
)
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.catalog import count_rows, prepare, sandbox
from kp_batch.warehouse.run_record import done_runs, last_done
from kp_batch.warehouse.snapshot import (
    CANDIDATE,
    PublishedSnapshot,
    kept_candidate,
    published,
)
from kp_batch.warehouse.staging import Staging

T = TypeVar("T")

_SHOWN = 5  # rows
_REMEDY = "fix the rows that they found, or allow one audit once with --allow-audit NAME"


def check_audits(run: Run) -> None:
    """Refuse audits that cannot run, before any work.

    Raises:
        SettingError: some audits cannot run, or --allow-audit names an unknown one; it lists all.
    """
    audits = run.config.audits.by_name
    faults: list[SettingError] = []
    if unknown := [repr(name) for name in run.config.allow_audit if name not in audits]:
        known = f"there are {', '.join(audits)}" if audits else "there is none"
        faults.append(
            SettingError(f"--allow-audit: there is no audit {', '.join(unknown)}; {known}")
        )
    if audits:
        with sandbox(run.snapshot, run.snapshot, run.staging.fresh("checked")) as connection:
            try:
                _asked(audits, partial(prepare, connection))
            except SettingError as error:
                faults.append(error)
    if faults:
        stored = "; ".join(fault.stored for fault in faults)
        raise SettingError("; ".join(map(str, faults)), code=faults[-1].code, stored=stored)


def audit(warehouse: Path, run: str | None = None) -> AuditResults:
    """Run the audits of a warehouse's settings.

    They also see the tables that were published before the run.

    Args:
        warehouse: the folder of the tables.
        run: the run whose tables are checked, as `find_runs` takes it, or `candidate`; None: the
            published tables, by the last run that is done.

    Raises:
        WarehouseError: it is not a warehouse, it has no audits, there is no such run, or its tables
            were removed.
        SettingError: an audit cannot run.
    """
    snapshot = kept_candidate(warehouse) if run == CANDIDATE else published(warehouse)
    audits = parse_audits(snapshot.manifest.settings.get("audits", {}), "the warehouse").by_name
    if not audits:
        raise WarehouseError(
            f"{shown(warehouse)} has no audits; add some with kp-batch run --audits FILE"
        )
    now = snapshot
    if run not in (None, CANDIDATE):
        now = snapshot.as_of(*snapshot.find_runs(run))
    with Staging.temporary() as staging:
        return _results(audits, now, _before(snapshot, now), staging.fresh("audited"))


def _before(snapshot: PublishedSnapshot, now: PublishedSnapshot) -> PublishedSnapshot:
    """Return the tables published before a run; none before the first run."""
    if now.is_candidate:  # its run may have failed, and then published rejects
        return now.before
    done = done_runs(snapshot.runs())
    since = now.past_run or last_done(done)
    earlier = [run for run in done if since and run.number < since.number]
    return snapshot.as_of(earlier[-1]) if earlier else PublishedSnapshot(snapshot.warehouse)


def _results(
    audits: Mapping[str, Audit],
    now: PublishedSnapshot,
    before: PublishedSnapshot,
    folder: Path,
    allowed: Sequence[str] = (),
) -> AuditResults:
    """Run audits over the tables `now`; they see those `before` as `published.scores` and so on."""
    with sandbox(now, before, folder) as connection:
        answers = _asked(audits, partial(count_rows, connection, most=_SHOWN))
    return AuditResults(
        AuditResult(name, audits[name].severity, rows, name in allowed, first, digest)
        for name, (rows, first, digest) in answers.items()
    )


def _asked(audits: Mapping[str, Audit], ask: Callable[[str], T]) -> dict[str, T]:
    """Return the answer to the SQL of each audit, by name.

    Raises:
        SettingError: some audits cannot run; it names all of them.
    """
    answers: dict[str, T] = {}
    faults: dict[str, str] = {}
    for name, audit in audits.items():
        try:
            answers[name] = ask(audit.sql)
        except (duckdb.Error, ValueError) as error:
            if is_passing(error):
                raise
            faults[name] = one_line(str(error))
    if faults:
        # DuckDB's messages quote values, but begin with the kind of the error.
        kinds = [f"{name}: {fault.partition(':')[0]}" for name, fault in faults.items()]
        raise SettingError(
            f"audits cannot be run: {'; '.join(': '.join(fault) for fault in faults.items())}",
            code="audits",
            stored=f"audits cannot be run: {'; '.join(kinds)}",
        )
    return answers


def audit_run(run: Run, now: Callable[[], PublishedSnapshot]) -> AuditResults:
    """Run the audits over the tables to publish, or else over the published ones, if any.

    A run that forgets traces has no audits.
    """
    if not run.config.audits.by_name or run.forgets:
        return AuditResults()
    return _audited(run, now())


def refuse(results: Sequence[AuditResult]) -> None:
    """Raise an AuditError if an audit fails, so that no scores are published."""
    refuse_failed(results, f"no scores were published; {_REMEDY}")


@step("audit")
def _audited(run: Run, now: PublishedSnapshot) -> AuditResults:
    """Run the audits, and warn about each that finds rows."""
    folder = run.staging.fresh("audited")
    audits, allowed = run.config.audits.by_name, run.config.allow_audit
    results = _results(audits, now, run.snapshot, folder, allowed)
    last = last_done(run.snapshot.runs())
    known = {(result.name, result.digest) for result in last.audits} if last else set()
    for result in results:
        if result.rows:
            is_known = not result.fails and (result.name, result.digest) in known
            warn(warning_text(result), repeated=is_known)
    return results
