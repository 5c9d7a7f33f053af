"""What forgetting takes: its run, that run's plan, and what `--as-of` loses."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import polars as pl

from kp_batch.executor import Step
from kp_batch.ingest.observe import observe_published
from kp_batch.operations.history import RunIds, sorted_runs
from kp_batch.operations.known_ids import KnownIds
from kp_batch.operations.results import Forgotten
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.scorer import Scorer
from kp_batch.run import Run
from kp_batch.warehouse.earlier import lacking
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.relations import partitions_of, run_records
from kp_batch.warehouse.versions import files_of

# The traces after those that go are replayed, and keep their weights: no day is weighted anew.
_NO_DAY = (date.max, date.min)


def staged(run: Run, known: KnownIds) -> Run:
    """The run that forgets these ids, which it finds staged."""
    pl.concat([known.seen, known.unseen]).write_parquet(run.staging.to_forget)
    return replace(run, restatable=_NO_DAY)


def plan_from_published(run: Run) -> Plan:
    """Plan without a look at the archive, and without the model."""
    return make_plan(run, observe_published(run), Scorer.as_published(run))


PLAN = Step("plan", plan_from_published)


def lost_runs(warehouse: Path, published: Manifest, plan: Plan | None) -> RunIds:
    """The earlier runs that --as-of cannot read afterwards; without a plan, no table is written."""
    tables, written = published.tables, plan.days if plan else ()
    days = partitions_of(warehouse, "scores", tables.get("scores"))
    scores = {path for day, paths in days.items() if day not in written for path in paths}
    if lacking("scores", sorted(scores)):
        scores = set[Path]()  # all are written anew
    rejects = () if plan else files_of(warehouse.resolve(), "rejects", tables.get("rejects"))
    runs = run_records(warehouse, tables.get("runs"))
    lost, _ = sorted_runs(warehouse.resolve(), runs, {"scores": scores, "rejects": set(rejects)})
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
