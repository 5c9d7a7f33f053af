"""Removes traces for good, and replays the traces that met them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.errors import WarehouseError
from kp_batch.executor import Local, Step
from kp_batch.facts import id_hash
from kp_batch.ingest.observe import observe_published
from kp_batch.operations.history import RunIds, sorted_runs
from kp_batch.operations.known_ids import KnownIds, known_ids
from kp_batch.operations.removal import (
    count_other_vectors,
    published_rows,
    remove_what_held,
    rewrite_facts,
)
from kp_batch.operations.results import Forgotten
from kp_batch.pipeline.report import leave_report
from kp_batch.pipeline.rescore import execute, open_run, say_plan
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.scorer import Scorer
from kp_batch.progress import say
from kp_batch.run import Run, in_force
from kp_batch.run_record import last_done
from kp_batch.staging import Staging
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.publication import writing
from kp_batch.warehouse.relations import partitions_of, run_records
from kp_batch.warehouse.tables import DeltaTables, quoted

# The traces after those that go are replayed, and keep their weights: no day is weighted anew.
_NO_DAY = (date.max, date.min)
_HOLDING_TRACES = ("scores", "rejects", "facts")


def forget(
    warehouse: Path, ids: Sequence[str], *, unseen_too: bool = False, with_page: bool = False
) -> Forgotten:
    """Remove traces for good, as if they had never been in the archive.

    They leave scores, rejects, facts and all history of these; the traces after them are replayed;
    vectors of their texts go unless another trace has the same; later runs pass them over. Where
    every id was forgotten before, nothing is changed, but for what a killed one has left to do.

    Args:
        warehouse: the folder of the tables.
        ids: the traces' ids.
        unseen_too: whether to keep ids out of later runs that no row has ever had.
        with_page: whether to make the page anew, which may name what is forgotten.

    Raises:
        KpBatchError: an id is unknown; nothing was changed.
        WarehouseError: it is no warehouse, nothing was ever scored in it, or a run is writing.
    """
    known = known_ids(warehouse, require_manifest(warehouse), ids)
    if not unseen_too:
        known.require_all()
    unfinished = Layout(warehouse).forgetting
    if not (_going(known) or unfinished.exists()):
        return _told(known)
    with writing(warehouse, wait=False):
        if unfinished.exists():
            say("an earlier forget was not finished: what it left is removed, too")
        try:
            told = _forget(warehouse, known) if _going(known) else _told(known)
            vectors = remove_what_held(warehouse, _HOLDING_TRACES)
        finally:
            if with_page:
                leave_report(warehouse, Local())
        unfinished.unlink()
    return replace(told, vectors=vectors)


def what_to_forget(
    warehouse: Path, ids: Sequence[str], staging: Staging, *, unseen_too: bool = False
) -> Forgotten:
    """Tell what `forget` would do; nothing in the warehouse is changed.

    Args:
        warehouse: the folder of the tables.
        ids: the traces' ids, which may be unknown.
        staging: an empty folder elsewhere.
        unseen_too: as for `forget`.

    Raises:
        WarehouseError: it is no warehouse, or nothing was ever scored in it.
    """
    published = require_manifest(warehouse)
    known = known_ids(warehouse, published, ids)
    if not (len(known.seen) or (unseen_too and len(known.unseen))):
        return _told(known)
    staging.make()
    run = Run.begin(_last_config(warehouse), datetime.now(UTC), staging)
    run = _staged(run, known)
    plan = _plan(run)
    without = f"ANTI JOIN read_parquet({quoted(str(staging.to_forget))}) AS gone USING (trace_id)"
    folders = Layout(warehouse).all_vectors.glob("*")
    vectors = count_other_vectors(warehouse, run.published, staging, folders, without)
    return replace(_told(known, plan, _lost(run, plan)), vectors=vectors)


def _going(known: KnownIds) -> int:
    return len(known.seen) + len(known.unseen)


def _forget(warehouse: Path, known: KnownIds) -> Forgotten:
    """Publish the tables without the traces; their older versions still hold them."""
    with open_run(_last_config(warehouse)) as opened:
        opened.begun = True
        run = _staged(opened.run, known)
        opened.plan = plan = opened.executor.call(PLAN, run)
        say_plan(run, plan)
        lost = _lost(run, plan)
        Layout(warehouse).forgetting.touch()
        execute(replace(run, tables=_without(run)), plan, opened.executor)
    return replace(_told(known, plan, lost), run_id=run.run_id)


def _last_config(warehouse: Path) -> RescoreConfig:
    """The settings of the last successful run, so that nothing but the traces differs."""
    last = last_done(run_records(warehouse, require_manifest(warehouse).tables.get("runs")))
    if last is None:
        raise WarehouseError(f"nothing was scored in {warehouse} yet; run an archive first")
    least = {"archive": last.config["archive"], "warehouse": str(warehouse)}
    return in_force(RescoreConfig.model_validate(least))


def _staged(run: Run, known: KnownIds) -> Run:
    """The run that forgets these ids, which it finds staged."""
    pl.concat([known.seen, known.unseen]).write_parquet(run.staging.to_forget)
    return replace(run, restatable=_NO_DAY)


def _plan(run: Run) -> Plan:
    """Plan without a look at the archive."""
    return make_plan(run, observe_published(run), Scorer.of(run))


PLAN = Step("plan", _plan)


def _without(run: Run) -> dict[str, int]:
    """Remove the traces from facts and add their ids' hashes to `forgotten`: the new versions."""
    warehouse, published = run.config.warehouse, run.published
    tables = DeltaTables(warehouse, published.tables, run.run_id)
    known = published_rows(warehouse, "forgotten", published)
    hashes = pl.read_parquet(run.staging.to_forget).select(id_hash=id_hash())
    tables.overwrite("forgotten", [pl.concat([known, hashes])])
    ids = pl.scan_parquet(run.staging.to_forget)
    rewrite_facts(
        warehouse,
        tables,
        lambda rows: rows.join(ids, on="trace_id", how="anti", maintain_order="left"),
    )
    return tables.versions


def _lost(run: Run, plan: Plan) -> RunIds:
    """The earlier runs that --as-of cannot read afterwards."""
    warehouse, tables = run.config.warehouse, run.published.tables
    days = partitions_of(warehouse, "scores", tables.get("scores"))
    scores = {path for day, paths in days.items() if day not in plan.days for path in paths}
    runs = run_records(warehouse, tables.get("runs"))
    lost, _ = sorted_runs(warehouse.resolve(), runs, {"scores": scores, "rejects": ()})
    return lost


def _told(known: KnownIds, plan: Plan | None = None, lost: RunIds = ()) -> Forgotten:
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
