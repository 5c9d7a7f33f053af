"""Runs the audits of a warehouse over what is published, or what a run left."""

from pathlib import Path

from kp_batch.errors import WarehouseError
from kp_batch.pipeline.audit import audits_of
from kp_batch.runs.audits import AuditResult, parse_audits
from kp_batch.runs.record import done_runs, last_done
from kp_batch.runs.staging import Staging
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.snapshot import PublishedSnapshot, published


def audit(warehouse: Path, run: str | None = None) -> tuple[AuditResult, ...]:
    """Run the audits that are kept now, beside what was published before a run.

    Args:
        warehouse: the folder of the tables.
        run: whose tables, as `find_runs` takes it; None for what is published, since the last run
            that is done.

    Raises:
        WarehouseError: it is no warehouse, it keeps no audits, there is no such run, or what it
            left was removed.
        KpBatchError: an audit cannot be run.
    """
    snapshot = published(warehouse)
    audits = parse_audits(snapshot.manifest.settings.get("audits", {}), "of the warehouse")
    if not audits.by_name:
        raise WarehouseError(
            f"{shown(warehouse)} keeps no audits; give some to a run with --audits FILE"
        )
    now = snapshot if run is None else snapshot.as_of(*snapshot.find_runs(run))
    with Staging.temporary() as staging:
        return audits_of(audits, now, _before(snapshot, now), staging.fresh("audited"))


def _before(snapshot: PublishedSnapshot, now: PublishedSnapshot) -> PublishedSnapshot:
    """What was published before the run that left some tables; nothing before the first one."""
    done = done_runs(snapshot.runs())
    since = now.left_by or last_done(done)
    earlier = [each for each in done if since and each.added_to < since.added_to]
    return snapshot.as_of(earlier[-1]) if earlier else PublishedSnapshot(snapshot.warehouse, {})
