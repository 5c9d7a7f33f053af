"""Removes traces for good, and replays the traces that met them."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
from polars.exceptions import PanicException

from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.facts import id_hash
from kp_batch.operations.forget_plan import (
    check_formulas,
    lost_runs,
    plan_from_published,
    stage_ids,
    told_of,
)
from kp_batch.operations.known_ids import KnownIds, known_ids
from kp_batch.operations.removal import (
    count_other_vectors,
    published_rows,
    remove_what_held,
    rewrite_facts,
)
from kp_batch.operations.results import Forgotten
from kp_batch.pipeline.report import leave_report, shows_older
from kp_batch.pipeline.rescore import execute, open_run, say_plan
from kp_batch.progress import warn
from kp_batch.run import Run, last_config
from kp_batch.sql import read_parquet, statement
from kp_batch.staging import Staging
from kp_batch.steps.step import ThreadExecutor
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.bucket.mirror import keeps_versions
from kp_batch.warehouse.delta import DeltaTables
from kp_batch.warehouse.layout import Layout, check_links
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.publication import writing

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
    known = _accepted(warehouse, ids, unseen_too=unseen_too)
    if not _is_work(warehouse, known):
        return told_of(known)
    with writing(warehouse, wait=False):
        known = _accepted(warehouse, ids, unseen_too=unseen_too)  # another may have ended meanwhile
        return _work(warehouse, known, with_page) if _is_work(warehouse, known) else told_of(known)


def what_to_forget(warehouse: Path, ids: Sequence[str], *, unseen_too: bool = False) -> Forgotten:
    """Tell what `forget` would do; nothing in the warehouse is changed.

    Args:
        warehouse: the folder of the tables.
        ids: the traces' ids, which may be unknown.
        unseen_too: as for `forget`.

    Raises:
        WarehouseError: it is no warehouse, or nothing was ever scored in it.
    """
    check_links(warehouse)
    published = require_manifest(warehouse)
    known = known_ids(warehouse, published, ids)
    refusal = "" if unseen_too else known.refusal
    goes = len(known.seen) or (unseen_too and len(known.unseen))
    finishes = Layout(warehouse).forgetting.exists()
    if not (goes or finishes):
        return replace(told_of(known), refusal=refusal)
    with Staging.temporary() as staging:
        run = Run.begin(last_config(warehouse), datetime.now(UTC), staging)
        check_formulas(run)
        stage_ids(run, known)
        plan = plan_from_published(run) if goes else None
        forgotten = read_parquet(staging.to_forget)
        without = statement("ANTI JOIN $gone AS gone USING (trace_id)", gone=forgotten)
        folders = Layout(warehouse).all_vectors.glob("*")
        vectors = count_other_vectors(warehouse, published, staging, folders, without)
    told = told_of(known, plan, lost_runs(warehouse, published, plan))
    return replace(told, vectors=vectors, refusal=refusal, finishes=finishes)


def _accepted(warehouse: Path, ids: Sequence[str], *, unseen_too: bool) -> KnownIds:
    """Look ids up, and refuse unknown ones unless they are to be kept out of later runs."""
    known = known_ids(warehouse, require_manifest(warehouse), ids)
    if known.refusal and not unseen_too:
        raise KpBatchError(known.refusal)
    return known


def _going(known: KnownIds) -> int:
    return len(known.seen) + len(known.unseen)


def _is_work(warehouse: Path, known: KnownIds) -> bool:
    return bool(_going(known)) or Layout(warehouse).forgetting.exists()


def _work(warehouse: Path, known: KnownIds, with_page: bool) -> Forgotten:  # noqa: FBT001 (private)
    """Forget, and remove what held the traces; of an earlier forget that was not finished, too."""
    marker, page = Layout(warehouse).forgetting, Layout(warehouse).report
    finishes = marker.exists()
    try:
        told = _forget(warehouse, known) if _going(known) else _finish(warehouse, known)
        vectors = remove_what_held(warehouse, _HOLDING_TRACES)
    finally:
        if with_page:
            leave_report(warehouse, ThreadExecutor())
    if with_page and shows_older(warehouse):
        raise WarehouseError(
            f"the traces are forgotten, but {page}, which may name them, cannot be replaced; "
            "remove it, and give the same command again"
        )
    marker.unlink()
    if keeps_versions(warehouse):
        warn(
            f"{shown(warehouse)} keeps older versions of its objects, which still hold the traces: "
            "delete the versions that are not current, by a lifecycle rule say"
        )
    return replace(told, vectors=vectors, finishes=finishes)


def _finish(warehouse: Path, known: KnownIds) -> Forgotten:
    return told_of(known, lost=lost_runs(warehouse, require_manifest(warehouse), None))


def _forget(warehouse: Path, known: KnownIds) -> Forgotten:
    """Publish the tables without the traces; their older versions still hold them."""
    with open_run(last_config(warehouse)) as opened:
        check_formulas(opened.run)
        opened.begun = True
        run = opened.run
        stage_ids(run, known)
        opened.plan = plan = plan_from_published(run)
        say_plan(run, plan)
        lost = lost_runs(warehouse, run.published, plan)
        with _marked(run):
            opened.run = replace(run, tables=_without(run))
            execute(opened, plan)
    return replace(told_of(known, plan, lost), run_id=run.run_id)


@contextmanager
def _marked(run: Run) -> Generator[None]:
    """Mark that files hold what is forgotten, unless this fails and nothing was forgotten."""
    warehouse, marker = run.config.warehouse, Layout(run.config.warehouse).forgetting
    stood = marker.exists()
    marker.touch()
    try:
        yield
    except (Exception, PanicException):
        with suppress(Exception):  # what fails here is not the error that counts
            now = require_manifest(warehouse).tables.get("forgotten")
            if not stood and now == run.published.tables.get("forgotten"):
                marker.unlink()
        raise


def _without(run: Run) -> dict[str, int]:
    """Remove the traces from facts and add their ids' hashes to `forgotten`: the new versions."""
    warehouse, published = run.config.warehouse, run.published
    tables = DeltaTables(warehouse, run.tables, run.run_id)
    known = published_rows(warehouse, "forgotten", published)
    hashes = pl.read_parquet(run.staging.to_forget, glob=False).select(id_hash=id_hash())
    tables.overwrite("forgotten", pl.concat([known, hashes]).unique(maintain_order=True))
    ids = pl.scan_parquet(run.staging.to_forget, glob=False)
    rewrite_facts(
        warehouse,
        tables,
        lambda rows: rows.join(ids, on="trace_id", how="anti", maintain_order="left"),
    )
    return tables.versions
