"""Removes traces for good, and replays the traces whose caches they were in."""

import shutil
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

import polars as pl
from polars.exceptions import PanicException

from kp_batch.duck import read_parquet, statement
from kp_batch.errors import KpBatchError, StorageError, WarehouseError
from kp_batch.imports.state import holds
from kp_batch.ingest.scan import scan_published
from kp_batch.log import warn
from kp_batch.operations.vacuum import (
    FactsRewrite,
    count_prunable_vectors,
    lost_runs,
    prune_vectors,
)
from kp_batch.parts import Facts, Head, Part, as_text
from kp_batch.pipeline.rescore import execute, log_plan, open_run
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.scorer import Scorer, is_as_published
from kp_batch.report.build import leave_report, shows_older
from kp_batch.runs.run import Run, last_config
from kp_batch.scoring.facts import id_hash
from kp_batch.steps.step import ThreadExecutor
from kp_batch.text import count_of, one_line, shortened, some_of, unknown_of
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.bucket.mirror import keeps_versions
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.last_run import leave_counts
from kp_batch.warehouse.layout import Layout, check_links
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.publication import may_remove, publish, start_over, writing
from kp_batch.warehouse.run_record import last_done
from kp_batch.warehouse.run_result import RunResult
from kp_batch.warehouse.snapshot import (
    PublishedSnapshot,
    kept_candidate,
    newest_trace,
    published,
)
from kp_batch.warehouse.staging import Staging
from kp_batch.warehouse.unneeded import Unneeded, kept_manifests

_NAMED = 3
_LETTERS = 80  # of an id that is shown


@dataclass(frozen=True, kw_only=True)
class ForgetResult(RunResult):
    """What was forgotten, or would be, and the work that it took.

    It is refused where ids are unknown. It has a run_id if a run replayed other traces.
    """

    traces: int  # scored
    rows: int  # rejected
    replaced: int  # ids that are only in content which counts no more, or not yet
    before: int  # ids that were forgotten before
    unseen: int  # ids that no row has ever had
    unseen_named: str  # a few of them, with the ids that may be meant
    replayed: int = 0  # traces
    restated: int = 0  # traces
    partitions: int = 0  # days that are rewritten
    vectors: int = 0  # of their texts, that are removed
    lost: tuple[str, ...] = ()  # the runs that --as-of could read until now, the first one first
    leftovers: int = 0  # other vectors that are removed: nothing needed them
    finishes: bool = False  # whether an earlier, unfinished one is finished, too
    archives: tuple[str, ...] = ()  # imported ones that still have the traces
    unknown_archives: tuple[str, ...] = ()  # that may have them: they are not there, say

    @property
    def has_work(self) -> bool:
        """Whether there is anything to forget."""
        return bool(self.traces or self.rows or self.replaced or self.unseen)

    def _parts_of_work(self) -> Iterable[Part]:
        return forgotten_parts(self)


def forget(  # noqa: PLR0913 (each is a choice of who forgets)
    warehouse: Path,
    ids: Sequence[str],
    *,
    unseen_too: bool = False,
    note: str | None = None,
    with_page: bool = False,
    dry_run: bool = False,
) -> ForgetResult:
    """Remove traces for good, as if they had never been in the archive.

    They are removed from scores, rejects, facts and all history of these, and so are the vectors of
    their texts, unless another trace has the same text. Traces after them are replayed; later runs
    skip them. Where every id was forgotten before, only a killed one is finished.

    Args:
        warehouse: the folder of the tables.
        ids: the traces' ids.
        unseen_too: whether to keep ids out of later runs that no row has ever had.
        note: a line to keep with the run.
        with_page: whether to write the page anew, which may name the traces.
        dry_run: only report what would be done; that an id is unknown is then its reason.

    Raises:
        KpBatchError: an id is unknown; nothing was changed.
        WarehouseError: it is no warehouse, nothing was ever scored in it, or a run is writing.
    """
    result = (
        _dry_run(warehouse, ids, unseen_too=unseen_too)
        if dry_run
        else _forget(warehouse, ids, note, unseen_too=unseen_too, with_page=with_page)
    )
    # Imported archives, which another warehouse could still read the traces from.
    held = {name: holds(name, ids) for name in last_config(warehouse).archive}
    if not result.reason:
        result = result.ended("done" if result.has_work or result.finishes else "nothing_to_do")
    return replace(
        result,
        archives=tuple(name for name, is_held in held.items() if is_held),
        unknown_archives=tuple(name for name, is_held in held.items() if is_held is None),
    )


def _forget(
    warehouse: Path, ids: Sequence[str], note: str | None, *, unseen_too: bool, with_page: bool
) -> ForgetResult:
    known = _checked_ids(warehouse, ids, unseen_too=unseen_too)
    if not _has_work(warehouse, known):
        return _result(warehouse, known)
    with writing(warehouse, wait=False):
        # Another one may have ended meanwhile.
        known = _checked_ids(warehouse, ids, unseen_too=unseen_too)
        if not _has_work(warehouse, known):
            return _result(warehouse, known)
        return _work(warehouse, known, note, with_page=with_page)


def _dry_run(warehouse: Path, ids: Sequence[str], *, unseen_too: bool) -> ForgetResult:
    """What would be done; where unknown ids would be refused, what would be done without them."""
    check_links(warehouse)
    known = known_ids(published(warehouse), ids)
    refusal = "" if unseen_too else known.refusal
    accepted = replace(known, unseen=known.unseen.clear()) if refusal else known
    has_work = _has_work(warehouse, accepted)
    result = _planned(warehouse, accepted) if has_work else _result(warehouse, accepted)
    result = replace(result, unseen=len(known.unseen))
    return result.ended("refused", refusal, KpBatchError.code) if refusal else result


def _checked_ids(warehouse: Path, ids: Sequence[str], *, unseen_too: bool) -> "KnownIds":
    """Look ids up, and refuse unknown ones unless they are to be kept out of later runs."""
    known = known_ids(published(warehouse), ids)
    if known.refusal and not unseen_too:
        raise KpBatchError(known.refusal)
    return known


def _has_work(warehouse: Path, known: "KnownIds") -> bool:
    return not known.going.is_empty() or Layout(warehouse).forgetting.exists()


def _planned(warehouse: Path, known: "KnownIds") -> ForgetResult:
    """Plan, in a temporary folder; without ids, to finish an earlier one."""
    with Staging.temporary() as staging:
        run = Run.begin(last_config(warehouse), datetime.now(UTC), staging)
        known.going.write_parquet(staging.to_forget)
        plan = None
        if not known.going.is_empty():
            check_formulas(run)
            plan = plan_from_published(run)
        forgotten = read_parquet(staging.to_forget)
        others = statement("ANTI JOIN $ids AS forgotten USING (trace_id)", ids=forgotten)
        removed = count_prunable_vectors(run.snapshot, staging, others)
        leftovers = _leftovers(run.snapshot, staging)
        result = _result_of_plan(run.snapshot, known, plan)
        return replace(result, vectors=removed - leftovers, leftovers=leftovers)


def _result_of_plan(
    snapshot: PublishedSnapshot, known: "KnownIds", plan: Plan | None
) -> ForgetResult:
    """The result of a plan before it is carried out, but for vectors."""
    return replace(
        _result(snapshot.warehouse, known),
        replayed=plan.counts.replayed if plan else 0,
        restated=plan.counts.restated if plan else 0,
        partitions=len(plan.days) if plan else 0,
        lost=_lost_runs(snapshot, plan),
        finishes=Layout(snapshot.warehouse).forgetting.exists(),
    )


def _result(warehouse: Path, known: "KnownIds") -> ForgetResult:
    return ForgetResult.here(
        "running",
        warehouse=shown(warehouse.absolute()),
        traces=known.traces,
        rows=known.rows,
        replaced=known.replaced,
        before=known.forgotten,
        unseen=len(known.unseen),
        unseen_named=known.unseen_named,
    )


def _work(warehouse: Path, known: "KnownIds", note: str | None, *, with_page: bool) -> ForgetResult:
    """Forget, and remove the files with the traces; also those of an earlier, unfinished one."""
    marker, page = Layout(warehouse).forgetting, Layout(warehouse).report
    with Staging.temporary() as staging:
        leftovers = _leftovers(published(warehouse), staging)
    try:
        if known.going.is_empty():
            result = _result_of_plan(published(warehouse), known, None)
        else:
            result = _publish_without(warehouse, known, note)
        removed = _purge_forgotten(warehouse)
    finally:
        if with_page:
            leave_report(warehouse, ThreadExecutor())
    if with_page and shows_older(warehouse):
        raise WarehouseError(
            f"the traces are forgotten, but {page}, which may name them, cannot be replaced; "
            "remove it, and give the same command again"
        )
    _remove_words(Layout(warehouse))
    marker.unlink(missing_ok=True)  # another forget in its bucket may have finished this one
    if keeps_versions(warehouse):
        warn(
            f"{shown(warehouse)} keeps older versions of its objects, which still hold the traces: "
            "delete the versions that are not current, by a lifecycle rule say"
        )
    return replace(result, vectors=removed - leftovers, leftovers=leftovers)


def _leftovers(snapshot: PublishedSnapshot, staging: Staging) -> int:
    """The vectors that nothing needs before anything is forgotten.

    None after an unfinished forget: they may be those of its traces.
    """
    if Layout(snapshot.warehouse).forgetting.exists():
        return 0
    return count_prunable_vectors(snapshot, staging, statement(""))


def _publish_without(warehouse: Path, known: "KnownIds", note: str | None) -> ForgetResult:
    """Publish the tables without the traces; their older versions still have them."""
    with open_run(last_config(warehouse, note)) as opened:
        run = opened.run
        check_formulas(run)
        opened.begin()
        known.going.write_parquet(run.staging.to_forget)
        plan = plan_from_published(run)
        opened.plan = replace(plan, counts=plan.counts.without_work)
        log_plan(run, plan)
        result = _result_of_plan(run.snapshot, known, plan)
        with _marked(run):
            opened.run = replace(run, candidate=_without_facts(run))
            execute(opened, plan)
        newest = newest_trace(run.config.warehouse)
        leave_counts(run.config.warehouse, plan.counts, newest)
    return replace(result, run_id=run.run_id, counts=plan.counts, newest_trace=newest)


@contextmanager
def _marked(run: Run) -> Generator[None]:
    """Mark that files have forgotten traces, unless this fails and nothing was forgotten."""
    warehouse, marker = run.config.warehouse, Layout(run.config.warehouse).forgetting
    was_marked = marker.exists()
    marker.touch()
    try:
        yield
    except (Exception, PanicException):
        with suppress(Exception):  # what fails here is not the error that counts
            now = require_manifest(warehouse).tables.get("forgotten")
            if not was_marked and now == run.published.tables.get("forgotten"):
                marker.unlink()
        raise


def _without_facts(run: Run) -> Candidate:
    """Remove the traces from facts, and add their ids' hashes to `forgotten`."""
    known = run.snapshot.scan("forgotten").collect()
    hashes = pl.read_parquet(run.staging.to_forget, glob=False).select(id_hash=id_hash())
    hashes = pl.concat([known, hashes]).unique(maintain_order=True)
    ids = pl.scan_parquet(run.staging.to_forget, glob=False)
    rewrite = FactsRewrite.of(
        run.snapshot,
        lambda rows: rows.join(ids, on="trace_id", how="anti", maintain_order="left"),
    )
    return rewrite.carry_out(run.candidate.overwrite("forgotten", hashes))


def _purge_forgotten(warehouse: Path) -> int:
    """Remove the files of tables that have forgotten traces, and the vectors of their texts.

    Only when all is published: until then a failing run falls back on what was published before.

    Returns:
        How many vectors were removed.

    Raises:
        StorageError: not all could be removed.
    """
    try:
        start_over(warehouse)  # list what others have stored in the bucket by now
        now = published(warehouse)
        runs, settings = now.runs(), now.manifest.settings
        last = last_done(runs)
        kept_from = last.number if last else now.manifest.number
        unchanged = Candidate(warehouse, now.manifest, "upkeep")
        publish(unchanged, settings, failed=now.manifest.failed, kept_from=kept_from)
        now = published(warehouse)
        unneeded = Unneeded.of(now, kept_manifests(now, runs, kept_from))
        may_remove(warehouse, unneeded.files)
        unneeded.remove()
        return prune_vectors(now)
    except (Exception, PanicException) as error:
        raise StorageError(
            f"the traces are forgotten, but not all files that hold them are removed "
            f"({one_line(str(error))}); mend that, and give the same command again"
        ) from error


def _remove_words(layout: Layout) -> None:
    """Remove what libraries printed during earlier commands, which may quote any trace."""
    layout.output.unlink(missing_ok=True)
    if layout.prefect.exists():
        shutil.rmtree(layout.prefect)


def check_formulas(run: Run, what: str = "forgetting") -> None:
    """Refuse to replay some traces by other formulas than those of the other scores.

    Raises:
        WarehouseError: this kp_batch has other ones.
    """
    if not is_as_published(run, Scorer.as_published(run)):
        raise WarehouseError(
            f"the scores are of another version of kp_batch, and {what} would mix them with "
            f"its own; first: {run.command}"
        )


def plan_from_published(run: Run) -> Plan:
    """Plan without a look at the archive, and without the model."""
    return make_plan(run, scan_published(run), Scorer.as_published(run))


def _lost_runs(snapshot: PublishedSnapshot, plan: Plan | None) -> tuple[str, ...]:
    """The earlier runs that --as-of can no longer read; without a plan, there is no new run."""
    runs = sorted(snapshot.runs(), key=lambda run: run.number)
    readable = [run for run in runs if run.number >= snapshot.manifest.kept_from]
    last = None if plan else last_done(runs)
    return tuple(run.run_id for run in readable if last is None or run.number < last.number)


@dataclass(frozen=True)
class KnownIds:
    """Distinct ids by what is known of them; frames of `trace_id`."""

    seen: pl.DataFrame  # those of any row that was ever read
    unseen: pl.DataFrame
    forgotten: int  # how many others were forgotten before
    traces: int  # that are scored
    rows: int  # that are rejected
    replaced: int  # ids that are only in content which counts no more, or not yet
    unseen_named: str  # a few of the unseen ones, with the ids that may be meant

    @property
    def going(self) -> pl.DataFrame:
        """Those that are forgotten now."""
        return pl.concat([self.seen, self.unseen])

    @property
    def refusal(self) -> str:
        """Which ids were never seen, and what to do about that, in words; empty: none."""
        if not len(self.unseen):
            return ""
        ids = len(self.seen) + len(self.unseen) + self.forgotten
        unknown = unknown_of(self.unseen_named, len(self.unseen), ids, "id")
        return f"{unknown}; --unseen-too also keeps out of later runs what was never seen"


def known_ids(snapshot: PublishedSnapshot, ids: Sequence[str]) -> KnownIds:
    """Look ids up in what is published, and in the facts of a candidate; duplicates count once."""
    is_kept = Layout(snapshot.warehouse).kept_candidate.exists()
    seen_by = kept_candidate(snapshot.warehouse) if is_kept else snapshot

    def rows_of(name: str, sought: pl.DataFrame) -> pl.DataFrame:
        """The ids of the table's rows that have one of those."""
        rows = (seen_by if name == "facts" else snapshot).scan(name).select("trace_id")
        return rows.join(sought.lazy(), on="trace_id", how="semi").collect(engine="streaming")

    unhashed = pl.DataFrame({"trace_id": ids}, schema={"trace_id": pl.String})
    distinct = unhashed.unique(maintain_order=True).with_columns(id_hash=id_hash())
    forgotten = snapshot.scan("forgotten").collect()
    new = distinct.join(forgotten, on="id_hash", how="anti", maintain_order="left").drop("id_hash")
    scores, rejects, facts = (rows_of(name, new) for name in ("scores", "rejects", "facts"))
    in_force = pl.concat([scores, rejects]).unique()
    known = pl.concat([in_force, facts])
    seen, unseen = (
        new.join(known, on="trace_id", how=how, maintain_order="left") for how in ("semi", "anti")
    )
    return KnownIds(
        seen=seen,
        unseen=unseen,
        forgotten=len(distinct) - len(new),
        traces=len(scores),
        rows=len(rejects),
        replaced=len(seen) - len(in_force),
        unseen_named=_named_ids(seen_by, unseen),
    )


def _named_ids(snapshot: PublishedSnapshot, unseen: pl.DataFrame) -> str:
    """Name a few unknown ids, each with the known ones that it is a part of."""
    ids = unseen.head(_NAMED).get_column("trace_id").to_list()
    if not ids:
        return ""
    containing = [pl.col("trace_id").str.contains(unknown, literal=True) for unknown in ids]
    rows = snapshot.scan("facts").select("trace_id").filter(pl.any_horizontal(containing))
    known = rows.unique().collect(engine="streaming")
    return some_of(map(_with_suggestion, ids, map(known.filter, containing)), len(unseen))


def _with_suggestion(unknown: str, known: pl.DataFrame) -> str:
    shown = shortened(unknown, _LETTERS)
    if not len(known):
        return shown
    first = shortened(known.get_column("trace_id").sort().item(0), _LETTERS)
    if len(known) == 1:
        return f"{shown} (did you mean {first}?)"
    return f"{shown} (part of {len(known):,} ids, such as {first})"


def forgotten_text(result: ForgetResult, *, dry_run: bool = False) -> str:
    """Format what was forgotten for a terminal, or what would be."""
    last = ["nothing was changed"] if dry_run else []
    return as_text([*forgotten_parts(result), *last])


def forgotten_parts(result: ForgetResult) -> Iterator[Part]:
    """What was forgotten for people; what would be, where no run was made."""
    forgotten = f"forgotten by run {result.run_id}" if result.run_id else "to be forgotten"
    traces = f"{count_of(result.traces, 'scored trace')}, {count_of(result.rows, 'rejected row')}"
    yield Head(f"{forgotten}: {traces}" if result.has_work else "nothing to forget")
    yield Facts([*_facts(result)])


def _facts(result: ForgetResult) -> Iterator[tuple[str, str]]:
    ids = [
        ("replaced", result.replaced, "of content that counts no more, or not yet"),
        ("before", result.before, "forgotten before"),
        ("unseen", result.unseen, f"never seen: {result.unseen_named}"),
    ]
    work = [
        ("replay", result.replayed, "trace"),
        ("restate", result.restated, "trace"),
        ("rewrite", result.partitions, "partition"),
        ("remove", result.vectors, "vector"),
    ]
    yield from ((name, f"{count_of(count, 'id')} {which}") for name, count, which in ids if count)
    yield from ((name, count_of(count, noun)) for name, count, noun in work if count)
    if result.finishes:
        yield "finish", "what an earlier forget left is removed, too"
    if result.leftovers:
        yield "leftover", f"{count_of(result.leftovers, 'vector')} that no trace needed, too"
    yield from lost_runs(result.lost, is_done=bool(result.run_id))
    for keeps, archives in (
        ("keeps", result.archives),
        ("was not looked into and may keep", result.unknown_archives),
    ):
        for name in archives:
            command = f"kp-batch import-forget {quote(name)} ID..."
            yield "archive", f"{name} {keeps} them, too: {command}"
