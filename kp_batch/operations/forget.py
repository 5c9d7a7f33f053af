"""Removes traces for good, and replays the traces that met them."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

import polars as pl
from polars.exceptions import PanicException

from kp_batch.duck import read_parquet, statement
from kp_batch.errors import KpBatchError, StorageError, WarehouseError
from kp_batch.facts import id_hash
from kp_batch.imports.state import holds
from kp_batch.ingest.scan import scan_published
from kp_batch.log import warn
from kp_batch.operations.vacuum import (
    FactsRewrite,
    RunIds,
    count_prunable_vectors,
    prune_vectors,
    restored_tables,
    sorted_runs,
)
from kp_batch.pipeline.report import leave_report, shows_older
from kp_batch.pipeline.rescore import execute, log_plan, open_run
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.scorer import Scorer, is_as_published
from kp_batch.runs.run import Run, last_config
from kp_batch.runs.staging import Staging
from kp_batch.steps.step import ThreadExecutor
from kp_batch.text import be, count_of, one_line, shortened
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.bucket.mirror import allow_deletion, keeps_versions
from kp_batch.warehouse.delta import DeltaTables, remove_unneeded
from kp_batch.warehouse.layout import Layout, check_links
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.publication import publish, writing
from kp_batch.warehouse.snapshot import PublishedSnapshot, published

_HOLDING_TRACES = ("scores", "rejects", "facts")
_NAMED = 3
_LETTERS = 80  # of an id that is shown


@dataclass(frozen=True)
class ForgetResult:
    """What was forgotten, or would be, and what that takes."""

    run_id: str | None  # of the run that replayed the others; null: there was none
    traces: int  # scored
    rows: int  # rejected
    replaced: int  # ids that stand only in content which counts no more
    before: int  # ids that were forgotten before
    unseen: int  # ids that no row has ever had
    unseen_named: str  # a few of them, and which ones may be meant
    replayed: int  # traces
    restated: int  # traces
    partitions: int  # days that are written anew
    vectors: int  # that are removed
    lost: tuple[str, ...]  # the runs that --as-of could read until now, the first one first
    refusal: str = ""  # why it would not be done, in words; empty: it would
    finishes: bool = False  # whether what an earlier one left is removed, too
    archives: tuple[str, ...] = ()  # imported ones that keep what they were told of the traces


def forget(
    warehouse: Path,
    ids: Sequence[str],
    *,
    unseen_too: bool = False,
    with_page: bool = False,
    dry_run: bool = False,
) -> ForgetResult:
    """Remove traces for good, as if they had never been in the archive.

    They leave scores, rejects, facts and all history of these; the traces after them are replayed;
    vectors of their texts go unless another trace has the same; later runs pass them over. Where
    every id was forgotten before, nothing is changed, but for what a killed one has left to do.

    Args:
        warehouse: the folder of the tables.
        ids: the traces' ids.
        unseen_too: whether to keep ids out of later runs that no row has ever had.
        with_page: whether to make the page anew, which may name what is forgotten.
        dry_run: tell what would be done, and change nothing; that an id is unknown is the `refusal`
            of what is told.

    Raises:
        KpBatchError: an id is unknown; nothing was changed.
        WarehouseError: it is no warehouse, nothing was ever scored in it, or a run is writing.
    """
    result = (
        _told_before(warehouse, ids, unseen_too=unseen_too)
        if dry_run
        else _done(warehouse, ids, unseen_too=unseen_too, with_page=with_page)
    )
    return replace(result, archives=_archives_that_hold(warehouse, ids))


def _archives_that_hold(warehouse: Path, ids: Sequence[str]) -> tuple[str, ...]:
    """Archives that an import made, and that would give the traces to another warehouse."""
    return tuple(each for each in last_config(warehouse).archive if holds(each, ids))


def _done(
    warehouse: Path, ids: Sequence[str], *, unseen_too: bool, with_page: bool
) -> ForgetResult:
    known = _accepted(warehouse, ids, unseen_too=unseen_too)
    if not _is_work(warehouse, known):
        return _result(known)
    with writing(warehouse, wait=False):
        known = _accepted(warehouse, ids, unseen_too=unseen_too)  # another may have ended meanwhile
        return _work(warehouse, known, with_page) if _is_work(warehouse, known) else _result(known)


def _told_before(warehouse: Path, ids: Sequence[str], *, unseen_too: bool) -> ForgetResult:
    """Tell what would be done; of unknown ids that would be refused, what would be without them."""
    check_links(warehouse)
    known = known_ids(published(warehouse), ids)
    refusal = "" if unseen_too else known.refusal
    taken = replace(known, unseen=known.unseen.clear()) if refusal else known
    result = _planned(warehouse, taken) if _is_work(warehouse, taken) else _result(taken)
    return replace(result, unseen=len(known.unseen), refusal=refusal)


def _accepted(warehouse: Path, ids: Sequence[str], *, unseen_too: bool) -> "KnownIds":
    """Look ids up, and refuse unknown ones unless they are to be kept out of later runs."""
    known = known_ids(published(warehouse), ids)
    if known.refusal and not unseen_too:
        raise KpBatchError(known.refusal)
    return known


def _is_work(warehouse: Path, known: "KnownIds") -> bool:
    return not known.going.is_empty() or Layout(warehouse).forgetting.exists()


def _planned(warehouse: Path, known: "KnownIds") -> ForgetResult:
    """Plan, in a temporary folder; without ids that go, to end what an earlier one has begun."""
    with Staging.temporary() as staging:
        run = Run.begin(last_config(warehouse), datetime.now(UTC), staging)
        known.going.write_parquet(staging.to_forget)
        plan = None
        if not known.going.is_empty():
            check_formulas(run)
            plan = plan_from_published(run)
        result = _result_of(run.snapshot, known, plan)
        return replace(result, vectors=_count_vectors(run))


def _count_vectors(run: Run) -> int:
    """Count the vectors of texts that no trace has but those whose ids are staged."""
    warehouse, gone = run.config.warehouse, read_parquet(run.staging.to_forget)
    without = statement("ANTI JOIN $gone AS gone USING (trace_id)", gone=gone)
    folders = Layout(warehouse).all_vectors.glob("*")
    return count_prunable_vectors(run.snapshot, run.staging, folders, without)


def _result_of(snapshot: PublishedSnapshot, known: "KnownIds", plan: Plan | None) -> ForgetResult:
    """What comes of a plan, before it is carried out, but for vectors."""
    return replace(
        _result(known),
        replayed=plan.counts.replayed if plan else 0,
        restated=plan.counts.restated if plan else 0,
        partitions=len(plan.days) if plan else 0,
        lost=_lost_runs(snapshot, plan),
        finishes=Layout(snapshot.warehouse).forgetting.exists(),
    )


def _result(known: "KnownIds") -> ForgetResult:
    return ForgetResult(
        run_id=None,
        traces=known.traces,
        rows=known.rows,
        replaced=known.replaced,
        before=known.forgotten,
        unseen=len(known.unseen),
        unseen_named=known.unseen_named,
        replayed=0,
        restated=0,
        partitions=0,
        vectors=0,
        lost=(),
    )


def _work(warehouse: Path, known: "KnownIds", with_page: bool) -> ForgetResult:  # noqa: FBT001 (private)
    """Forget, and remove what held the traces; of an earlier forget that was not finished, too."""
    marker, page = Layout(warehouse).forgetting, Layout(warehouse).report
    try:
        is_run = not known.going.is_empty()
        result = (
            _forget(warehouse, known) if is_run else _result_of(published(warehouse), known, None)
        )
        vectors = _purge_forgotten(warehouse)
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
    return replace(result, vectors=vectors)


def _forget(warehouse: Path, known: "KnownIds") -> ForgetResult:
    """Publish the tables without the traces; their older versions still hold them."""
    with open_run(last_config(warehouse)) as opened:
        run = opened.run
        check_formulas(run)
        opened.begun = True
        known.going.write_parquet(run.staging.to_forget)
        opened.plan = plan = plan_from_published(run)
        log_plan(run, plan)
        result = _result_of(run.snapshot, known, plan)
        with _marked(run):
            opened.run = replace(run, tables=_without(run))
            execute(opened, plan)
    return replace(result, run_id=run.run_id)


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
    warehouse, known = run.config.warehouse, run.snapshot.scan("forgotten").collect()
    tables = DeltaTables(warehouse, run.tables, run.run_id)
    hashes = pl.read_parquet(run.staging.to_forget, glob=False).select(id_hash=id_hash())
    tables.overwrite("forgotten", pl.concat([known, hashes]).unique(maintain_order=True))
    ids = pl.scan_parquet(run.staging.to_forget, glob=False)
    rewrite = FactsRewrite.of(
        PublishedSnapshot(warehouse, tables.versions),
        lambda rows: rows.join(ids, on="trace_id", how="anti", maintain_order="left"),
    )
    rewrite.carry_out(warehouse, tables)
    return tables.versions


def _purge_forgotten(warehouse: Path) -> int:
    """Remove the files of tables that hold forgotten traces, and the vectors of their texts.

    Only when all is published: a run may fail, and what it fails over is what was published before.

    Returns:
        How many vectors were removed.

    Raises:
        StorageError: not all could be removed.
    """
    try:
        now = published(warehouse)
        left = replace(now.manifest, tables=restored_tables(now).versions)
        publish(warehouse, left)
        allow_deletion(warehouse)
        for name in _HOLDING_TRACES:
            remove_unneeded(warehouse, name, {left.tables[name]} if name in left.tables else set())
        return prune_vectors(PublishedSnapshot(warehouse, left.tables, left))
    except (Exception, PanicException) as error:
        raise StorageError(
            f"the traces are forgotten, but not all files that hold them are removed "
            f"({one_line(str(error))}); mend that, and give the same command again"
        ) from error


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


def plan_from_published(run: Run) -> Plan:
    """Plan without a look at the archive, and without the model."""
    return make_plan(run, scan_published(run), Scorer.as_published(run))


def _lost_runs(snapshot: PublishedSnapshot, plan: Plan | None) -> RunIds:
    """The earlier runs that --as-of cannot read afterwards; without a plan, no table is written."""
    days, written = snapshot.days.items(), plan.days if plan else ()
    scores = {path for day, paths in days if day not in written for path in paths}
    rejects = () if plan else snapshot.files("rejects")
    stays = {"scores": scores, "rejects": set(rejects)}
    lost, _ = sorted_runs(snapshot.warehouse.resolve(), snapshot.runs(), stays)
    return lost


@dataclass(frozen=True)
class KnownIds:
    """Ids, each once, sorted by what is known of them; frames of `trace_id`."""

    seen: pl.DataFrame  # those of any row that was ever read
    unseen: pl.DataFrame
    forgotten: int  # how many others were forgotten before
    traces: int  # that are scored
    rows: int  # that are rejected
    replaced: int  # ids that stand only in content which counts no more
    unseen_named: str  # a few of the unseen ones, and which ones may be meant

    @property
    def going(self) -> pl.DataFrame:
        """Those that are forgotten now."""
        return pl.concat([self.seen, self.unseen])

    @property
    def refusal(self) -> str:
        """Which ids were never seen, and what to do about that, in words; empty: none."""
        if not len(self.unseen):
            return ""
        given = count_of(len(self.seen) + len(self.unseen) + self.forgotten, "id")
        return (
            f"{len(self.unseen):,} of {given} {be(len(self.unseen))} unknown: "
            f"{self.unseen_named}; nothing was changed; --unseen-too also keeps out of later runs "
            "what was never seen"
        )


def known_ids(snapshot: PublishedSnapshot, ids: Sequence[str]) -> KnownIds:
    """Look ids up in what is published, and read nothing else.

    Args:
        snapshot: what is published.
        ids: in any number; those given twice count once.
    """

    def having(name: str, sought: pl.DataFrame) -> pl.DataFrame:
        """The ids of a table's rows that are sought, as often as they stand there."""
        rows = snapshot.scan(name).select("trace_id")
        found = rows.join(sought.lazy(), on="trace_id", how="semi")
        return found.collect(engine="streaming")

    sought = pl.DataFrame({"trace_id": ids}, schema={"trace_id": pl.String})
    given = sought.unique(maintain_order=True).with_columns(id_hash=id_hash())
    forgotten = snapshot.scan("forgotten").collect()
    new = given.join(forgotten, on="id_hash", how="anti", maintain_order="left").drop("id_hash")
    scores, rejects, facts = (having(name, new) for name in ("scores", "rejects", "facts"))
    counting = pl.concat([scores, rejects]).unique()
    found = pl.concat([counting, facts])
    seen, unseen = (
        new.join(found, on="trace_id", how=how, maintain_order="left") for how in ("semi", "anti")
    )
    return KnownIds(
        seen=seen,
        unseen=unseen,
        forgotten=len(given) - len(new),
        traces=len(scores),
        rows=len(rejects),
        replaced=len(seen) - len(counting),
        unseen_named=_named(snapshot, unseen),
    )


def _named(snapshot: PublishedSnapshot, unseen: pl.DataFrame) -> str:
    """Name a few ids that are unknown, each with the known ones that it is a part of."""
    named = unseen.head(_NAMED).get_column("trace_id").to_list()
    if not named:
        return ""
    ids = snapshot.scan("facts").select("trace_id")
    parts = [pl.col("trace_id").str.contains(each, literal=True) for each in named]
    known = ids.filter(pl.any_horizontal(parts)).unique().collect(engine="streaming")
    words = [_with_meant(each, known.filter(part)) for each, part in zip(named, parts, strict=True)]
    more = len(unseen) - len(named)
    return ", ".join([*words, *([f"{more:,} more"] if more else [])])


def _with_meant(unknown: str, known: pl.DataFrame) -> str:
    shown = shortened(unknown, _LETTERS)
    if not len(known):
        return shown
    first = shortened(known.get_column("trace_id").sort().item(0), _LETTERS)
    if len(known) == 1:
        return f"{shown} (did you mean {first}?)"
    return f"{shown} (part of {len(known):,} ids, such as {first})"
