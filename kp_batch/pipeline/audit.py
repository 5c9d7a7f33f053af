"""Audits the tables that a run would publish: after it has written them, and before it publishes.

The audits of a warehouse see what would be published, and beside it what is.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb

from kp_batch.errors import KpBatchError, is_passing
from kp_batch.log import warn
from kp_batch.runs.audits import AuditResult, Audits, found_text, refuse_failed
from kp_batch.runs.run import Run
from kp_batch.steps.step import step
from kp_batch.text import one_line
from kp_batch.warehouse.sandbox import found_rows, prepared, sandbox
from kp_batch.warehouse.snapshot import PublishedSnapshot

_SHOWN = 5  # rows
_REMEDY = "mend what they found, or let one pass this once with --allow NAME"


def check_audits(run: Run) -> None:
    """Refuse audits that cannot be asked, before any work.

    Raises:
        KpBatchError: it names all of them; or --allow names none of them.
    """
    audits = run.config.audits.by_name
    if unknown := [name for name in run.config.allow if name not in audits]:
        known = f"there are {', '.join(audits)}" if audits else "there is none"
        raise KpBatchError(f"--allow: there is no audit {unknown[0]!r}; {known}")
    if audits:
        with sandbox(run.snapshot, run.snapshot, run.staging.fresh("checked")) as connection:
            _refuse(list(_unaskable(connection, run.config.audits)))


def audits_of(
    audits: Audits,
    now: PublishedSnapshot,
    before: PublishedSnapshot,
    folder: Path,
    allowed: Sequence[str] = (),
) -> tuple[AuditResult, ...]:
    """Run audits over some tables.

    Args:
        audits: the audits.
        now: the tables.
        before: those before them, the views `published.scores` and so on.
        folder: an empty one.
        allowed: the names of those that may find rows.

    Raises:
        KpBatchError: some cannot be run; it names all of them.
    """
    results: list[AuditResult] = []
    faults: list[str] = []
    if audits.by_name:
        with sandbox(now, before, folder) as connection:
            for name, each in audits.by_name.items():
                try:
                    rows, first = found_rows(connection, each.sql, _SHOWN)
                except (duckdb.Error, ValueError) as error:
                    faults.append(_fault(name, error))
                else:
                    results.append(AuditResult(name, each.severity, rows, name in allowed, first))
    _refuse(faults)
    return tuple(results)


def audit_run(run: Run, now: PublishedSnapshot) -> tuple[AuditResult, ...]:
    """Run the audits over what a run would publish, or over what is published.

    What forgets traces is not held up by them.
    """
    return _audited(run, now) if run.config.audits.by_name and not run.forgets else ()


def refuse(results: Sequence[AuditResult]) -> None:
    """Raise an AuditError where an audit fails: then no scores are published."""
    refuse_failed(results, f"no scores were published; {_REMEDY}")


@step("audit")
def _audited(run: Run, now: PublishedSnapshot) -> tuple[AuditResult, ...]:
    """Run the audits, and tell of all that find rows."""
    folder = run.staging.fresh("audited")
    results = audits_of(run.config.audits, now, run.snapshot, folder, run.config.allow)
    for each in results:
        if each.rows:
            warn(found_text(each))
    return results


def _unaskable(connection: duckdb.DuckDBPyConnection, audits: Audits) -> Iterator[str]:
    for name, each in audits.by_name.items():
        try:
            prepared(connection, each.sql)
        except (duckdb.Error, ValueError) as error:
            yield _fault(name, error)


def _fault(name: str, error: Exception) -> str:
    if is_passing(error):
        raise error
    return f"{name}: {one_line(str(error))}"


def _refuse(faults: Sequence[str]) -> None:
    if faults:
        raise KpBatchError(f"audits cannot be run: {'; '.join(faults)}")
