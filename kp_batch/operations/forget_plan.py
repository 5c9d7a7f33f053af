"""What forgetting takes: its run, that run's plan, and what `--as-of` loses."""

from pathlib import Path
from shlex import quote

import polars as pl

from kp_batch.errors import WarehouseError
from kp_batch.ingest.observe import observe_published
from kp_batch.operations.history import RunIds, sorted_runs
from kp_batch.operations.known_ids import KnownIds
from kp_batch.operations.results import Forgotten
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.why import is_as_published
from kp_batch.run import Run
from kp_batch.steps.step import step
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.snapshot import PublishedSnapshot


def stage_ids(run: Run, known: KnownIds) -> None:
    """Stage the ids that a run forgets: it finds them there."""
    pl.concat([known.seen, known.unseen]).write_parquet(run.staging.to_forget)


def check_formulas(run: Run, what: str = "forgetting") -> None:
    """Refuse to replay some traces by other formulas than the scores of the others bear.

    Args:
        run: the run that would.
        what: it would do, for the message.

    Raises:
        WarehouseError: this kp_batch has other ones.
    """
    if not is_as_published(run, Scorer.as_published(run)):
        config = run.config
        archive, warehouse = " ".join(map(quote, config.archive)), quote(shown(config.warehouse))
        raise WarehouseError(
            f"the scores are of another version of kp_batch, and {what} would mix them with "
            f"its own; first: kp-batch run {archive} --warehouse {warehouse}"
        )


@step("plan")
def plan_from_published(run: Run) -> Plan:
    """Plan without a look at the archive, and without the model."""
    return make_plan(run, observe_published(run), Scorer.as_published(run))


def lost_runs(warehouse: Path, published: Manifest, plan: Plan | None) -> RunIds:
    """The earlier runs that --as-of cannot read afterwards; without a plan, no table is written."""
    tables, written = published.tables, plan.days if plan else ()
    snapshot = PublishedSnapshot(warehouse, tables)
    days = snapshot.days.items()
    scores = {path for day, paths in days if day not in written for path in paths}
    rejects = () if plan else snapshot.files("rejects")
    lost, _ = sorted_runs(
        warehouse.resolve(), snapshot.runs(), {"scores": scores, "rejects": set(rejects)}
    )
    return lost


def told_of(known: KnownIds, plan: Plan | None = None, lost: RunIds = ()) -> Forgotten:
    """What is known before it is done: neither its run nor how many vectors go."""
    return Forgotten(
        run_id=None,
        traces=known.traces,
        rows=known.rows,
        replaced=known.replaced,
        before=known.forgotten,
        unseen=len(known.unseen),
        unseen_named=known.unseen_named,
        replayed=plan.counts.replayed if plan else 0,
        restated=plan.counts.restated if plan else 0,
        partitions=len(plan.days) if plan else 0,
        vectors=0,
        lost=lost,
    )
