"""Removes traces for good, and replays the traces that met them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import polars as pl

from kp_batch.clock import Clock
from kp_batch.config import RescoreConfig
from kp_batch.errors import WarehouseError
from kp_batch.executor import Step
from kp_batch.facts import id_hash
from kp_batch.ingest.observe import observe_published
from kp_batch.operations.removal import (
    keep_vectors,
    published_rows,
    remove_files,
    restored_tables,
    rewrite_facts,
)
from kp_batch.pipeline.rescore import execute, open_run, say_plan
from kp_batch.pipeline.summary import Summary
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.scorer import Scorer
from kp_batch.run import Run, in_force
from kp_batch.run_record import last_done
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.publication import publish, writing
from kp_batch.warehouse.relations import run_records
from kp_batch.warehouse.tables import DeltaTables

# The traces after those that go are replayed, and keep their weights: no day is weighted anew.
_NO_DAY = (date.max, date.min)
_HOLDING_TRACES = ("scores", "rejects", "facts")


def forget(warehouse: Path, ids: Sequence[str], clock: Clock | None = None) -> Summary:
    """Remove traces for good, as if they had never been in the archive.

    They leave scores, rejects, facts and all history of these; the traces after them are replayed;
    vectors of their texts go unless another trace has the same; later runs pass them over.

    Args:
        warehouse: the folder of the tables.
        ids: the traces' ids.
        clock: began with the wait for this run; now, unless given.

    Returns:
        The summary of the run that replayed the others.

    Raises:
        WarehouseError: it is no warehouse, nothing was ever scored in it, or a run is writing.
    """
    with writing(warehouse, wait=False):
        with open_run(_last_config(warehouse), clock=clock) as opened:
            opened.begun = True
            tables = _without(opened.run, ids)
            run = replace(opened.run, tables=tables, restatable=_NO_DAY)
            opened.plan = opened.executor.call(PLAN, run, ids)
            say_plan(run, opened.plan)
            summary = execute(run, opened.plan, opened.executor)
        # Only now that this is published: the run may have failed, and nothing else removed then.
        now = require_manifest(warehouse)
        left = replace(now, tables=restored_tables(warehouse, now).versions)
        publish(warehouse, left)
        remove_files(warehouse, _HOLDING_TRACES, [left.tables])
        keep_vectors(warehouse, left)
    return summary


def _last_config(warehouse: Path) -> RescoreConfig:
    """The settings of the last successful run, so that nothing but the traces differs."""
    last = last_done(run_records(warehouse, require_manifest(warehouse).tables.get("runs")))
    if last is None:
        raise WarehouseError(f"nothing was scored in {warehouse} yet; run an archive first")
    least = {"archive": last.config["archive"], "warehouse": str(warehouse)}
    return in_force(RescoreConfig.model_validate(least))


def _plan(run: Run, ids: Sequence[str]) -> Plan:
    """Plan without a look at the archive."""
    return make_plan(run, observe_published(run), Scorer.of(run), ids)


PLAN = Step("plan", _plan)


def _without(run: Run, ids: Sequence[str]) -> dict[str, int]:
    """Remove these traces from facts and add their ids' hashes to `forgotten`: the new versions."""
    warehouse, published = run.config.warehouse, run.published
    tables = DeltaTables(warehouse, published.tables, run.run_id)
    known = published_rows(warehouse, "forgotten", published)
    hashes = pl.DataFrame({"trace_id": list(ids)}).select(id_hash=id_hash())
    tables.overwrite("forgotten", [pl.concat([known, hashes]).unique(maintain_order=True)])
    stays = ~pl.col("trace_id").is_in(list(ids)).fill_null(value=False)
    rewrite_facts(warehouse, tables, stays)
    return tables.versions
