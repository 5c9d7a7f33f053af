"""Imports other systems' traces into an archive, and forgets traces.

The archive keeps all records of its sources, so an import reads only new or changed files, and
builds the traces of which these have records. Removing a file from a source removes no trace.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from kp_batch.archive.sources import absolute
from kp_batch.conversion.apply_rules import check_rules, check_rules_decide
from kp_batch.conversion.formats import FORMATS, detect_format
from kp_batch.conversion.model import Format, Input
from kp_batch.conversion.rules import Rules
from kp_batch.errors import ArchiveError, KpBatchError
from kp_batch.imports.change import ArchiveChange, Forgotten, is_expired, waiting_of
from kp_batch.imports.destination import Archive, target_of
from kp_batch.imports.import_limits import ImportLimits, check_limits
from kp_batch.imports.job import ImportJob
from kp_batch.imports.refusals import NAMES
from kp_batch.imports.rereading import Replaced, moved_files, namesakes
from kp_batch.imports.sorted_runs import RUN_BYTES
from kp_batch.imports.source_files import (
    Sniffed,
    Source,
    file_stamp,
    files_of,
    head_of,
    is_closed,
    local_path,
    newer,
    size_of,
    source_of,
    unread,
)
from kp_batch.imports.state import ImportState, KnownSource, state_file
from kp_batch.imports.summary import Imported
from kp_batch.imports.workers import Workers
from kp_batch.log import progress, warn
from kp_batch.steps.step import cut
from kp_batch.storage.urls import is_url
from kp_batch.text import be, count_of

IMPORTER = 11  # the version of how records become traces
_LARGE = 64 << 20  # bytes
_PROCESSES = 8  # at the most: one process joins their results, and keeps no more of them busy
_PACKED = 20  # bytes of records in a byte of a segment, about


def import_traces(
    form: Format | None,
    sources: Sequence[str],
    archive: str | PathLike[str],
    rules: Rules,
    limits: ImportLimits = ImportLimits(),  # noqa: B008 (it is frozen)
) -> Imported:
    """Import traces; see `Format` and `Rules`.

    Files that are known are not read again; of a database that is known, new rows are read. Other
    rules build all traces anew of the records of the archive. Another version of the importer
    reads all files again, and builds of the records of the archive what none of them tells.

    Args:
        form: of the sources; None for that of the archive, or for a new one that of the files.
        sources: files, and folders of which all files count, or URLs of these; URLs of databases.
        archive: the folder of the archive, or its URL in a bucket; made where it is missing.
        rules: what decides where the format does not.
        limits: on what is refused.

    Raises:
        KpBatchError: the rules leave something open, or name what the sources have not; or the
            archive is of another format, or that of the files is unclear; or a limit does not
            allow it: then only the lists of refusals in the archive change.
        ArchiveError: there is no file of the format.
    """
    with TemporaryDirectory(prefix="kp-import-") as name:
        target = target_of(str(archive), Path(name) / "archive")
        plan = _Plan.of(target.snapshot(), form, files_of(sources, str(archive)), rules)
        check_rules(plan.form, rules)
        _check_same_traces(plan.archive.name, plan.state, rules)
        if not plan.source.inputs:
            raise ArchiveError(
                f"no file of {plan.form.name} at {', '.join(sources)}; look at the path, or name "
                "another format"
            )
        if plan.is_empty:
            return plan.nothing_done()
        with target.alone() as opened:
            return _import(plan.at(opened), Path(name) / "scratch", limits)


@dataclass(frozen=True)
class _Plan:
    """What an import has to do: the files of its sources, and those that the archive knows."""

    archive: Archive
    form: Format
    rules: Rules
    state: ImportState
    known: Mapping[str, KnownSource]
    source: Source

    @classmethod
    def of(
        cls, archive: Archive, form: Format | None, files: Mapping[str, str], rules: Rules
    ) -> "_Plan":
        state = ImportState.of(archive)
        form = form or FORMATS.get(state.format)
        form = form or detect_format([*files], lambda path: head_of(path, files[path]), local_path)
        _check_format(archive, state, form)
        known = state.known_sources(archive)
        sniffed = {path: each for path, each in known.items() if each.importer == IMPORTER}
        source = source_of(form, files, Sniffed(form, files, sniffed))
        return cls(archive, form, rules, state, known, source)

    def at(self, archive: Archive) -> "_Plan":
        """The same, once nobody else changes the archive: another import may have until then."""
        state = ImportState.of(archive)
        _check_format(archive, state, self.form)
        _check_same_traces(archive.name, state, self.rules)
        return replace(self, archive=archive, state=state, known=state.known_sources(archive))

    @cached_property
    def new(self) -> Mapping[str, Input]:
        """The files to read, in the order of their paths: new and changed, and outdated ones."""
        known = {path: each for path, each in self.known.items() if path not in self.outdated}
        stamps = {path: each.fingerprint or "" for path, each in known.items()}
        changed = sorted(x for x, now in self.source.stamps.items() if stamps.get(x) != now)
        return {path: newer(self.source.inputs[path], stamps.get(path, "")) for path in changed}

    @cached_property
    def outdated(self) -> Mapping[str, str]:
        """The files that another importer has read, wherever they are now, with their stamps."""
        return {
            path: file_stamp(known.fingerprint)
            for path, known in self.known.items()
            if known.fingerprint is not None and known.importer != IMPORTER
        }

    @property
    def again(self) -> int:
        """How many of the files to read are as another importer has read them."""
        now = self.source.stamps
        return sum(x in self.outdated and self.known[x].fingerprint == now[x] for x in self.new)

    @property
    def is_of_another_importer(self) -> bool:
        """Whether another version of the importer made the archive."""
        return bool(self.state.format) and self.state.importer != IMPORTER

    @property
    def is_all_anew(self) -> bool:
        """Whether all traces have to be built again."""
        before = (self.state.importer, self.state.rules)
        return bool(self.state.format) and before != (IMPORTER, self.rules.as_json())

    @property
    def processes(self) -> int:
        """The number of worker processes: starting one takes a second."""
        size = sum(self.source.sizes[path] for path in self.new)
        if self.is_all_anew:
            segments = (state_file(self.archive, name) for name in self.state.segments)
            size += sum(segment.stat().st_size for segment in segments) * _PACKED
        is_known = FORMATS.get(self.form.name) is self.form
        return min(pl.thread_pool_size(), _PROCESSES) if is_known and size > _LARGE else 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do, so that the archive need not be locked."""
        state = self.state
        is_due = any(map(is_expired, state.skipped)) or self._has_settled
        return state.is_done and not (self.new or self.is_all_anew or state.closed or is_due)

    @property
    def _has_settled(self) -> bool:
        """Whether nothing is waited for any more of traces that wait for their root."""
        return bool(self.rules.root) and len(waiting_of(self.state, self.archive).settled) > 0

    @property
    def next_state(self) -> ImportState:
        """The state of the archive after this import, but for what it stores."""
        changes = {
            "format": self.form.name,
            "importer": IMPORTER,
            "rules": self.rules.as_json(),
            "closed": sum(map(is_closed, self.source.inputs)),
        }
        return self.state.model_copy(update=changes)

    def nothing_done(self) -> Imported:
        """The result where nothing is read."""
        return Imported(
            files=len(self.source.inputs),
            standing={kind: self.state.standing.get(kind, 0) for kind in NAMES},
            rules=json.loads(self.rules.as_json()),
        )


def _check_format(archive: Archive, state: ImportState, form: Format) -> None:
    if state.format not in ("", form.name):
        raise KpBatchError(
            f"{archive.name} has traces of {state.format}, and an archive has those of one "
            "format; name another one: a run takes several"
        )


def _check_same_traces(archive: str, state: ImportState, rules: Rules) -> None:
    """Refuse rules of turns for an archive of sessions, and of sessions for one of turns.

    Raises:
        KpBatchError: the archive of this name, and state, has others than the rules.
    """
    before = Rules.from_json(state.rules)
    if state.format and before.trace != rules.trace:
        raise KpBatchError(
            f'{archive} was made with trace = "{before.trace}", and these rules have '
            f'trace = "{rules.trace}": import into a new folder'
        )


def _import(plan: _Plan, folder: Path, limits: ImportLimits) -> Imported:
    """Carry out a plan; nobody else changes the archive meanwhile."""
    state = plan.next_state
    with Workers(plan.processes) as workers:
        job = ImportJob(plan.form, plan.rules, folder, state.number + 1, workers)
        readable = _read(job, plan)
        known = _known(plan, readable, job.new.number)
        change = ArchiveChange(plan.archive, state, known, job, folder)
        again = [path for path in readable if path in plan.known]
        deleted = change.count_deleted(again) if plan.form.source == "registry" else 0
        replaced = _replaced(plan, readable, change)
        change.build(all_anew=plan.is_all_anew, replaced=replaced)
    standing = _checked(plan, job, change, limits)
    # That of the archive is of an import that was killed.
    kept = change.kept if plan.is_of_another_importer else plan.state.kept
    _tell_kept(kept, plan.outdated.keys() - plan.source.inputs.keys() - {*replaced.whole})
    return replace(
        plan.nothing_done(),
        traces=job.traces,
        files_read=len(plan.new),
        files_again=plan.again,
        refused=dict(job.refusals.refused),
        waiting=dict(job.refusals.waiting),
        standing=standing,
        passed_over=dict(job.skipped),
        expired=change.count_expired(),
        deleted=deleted,
        kept=kept,
        unmapped_domains=dict(job.counts.unmapped),
        files_changed=change.store(kept=kept),
    )


def _checked(
    plan: _Plan, job: ImportJob, change: ArchiveChange, limits: ImportLimits
) -> dict[str, int]:
    """Write the refusals; returns how many there are of each kind in all.

    Raises:
        KpBatchError: the rules leave something open; or limits do not allow what is written.
    """
    if plan.is_all_anew or not plan.state.format:
        job.check_names()
    if not job.traces:
        check_rules_decide(plan.form, plan.rules, job.refusals.refused)
    standing = change.write_refusals()
    check_limits(limits, job.refusals, job.traces, len(plan.source.inputs))
    return standing


def _read(job: ImportJob, plan: _Plan) -> set[str]:
    """Read files; returns the paths of those that are readable."""
    readable = set[str]()
    with progress("reading", len(plan.new), "file") as bar:
        sizes = plan.source.sizes
        groups = list(cut(plan.new.values(), lambda file: sizes[file.path], RUN_BYTES))
        for group, paths in zip(groups, job.read(groups), strict=True):
            readable |= paths
            bar.add(len(group))
    return readable


def _replaced(plan: _Plan, readable: Collection[str], change: ArchiveChange) -> Replaced:
    """The files whose former records are void, as an older importer had read them."""
    # What a registry tells of a unit replaces what it told before in any case.
    if plan.form.source == "registry" or not plan.outdated:
        return Replaced()
    stamps = {path: file_stamp(plan.source.stamps[path]) for path in readable}
    gone = {path: x for path, x in plan.outdated.items() if path not in plan.source.inputs}
    new = {path: stamp for path, stamp in stamps.items() if path not in plan.known}
    moved = moved_files(gone, new)
    # One that tells of the same session, and has its name, is the same file.
    named = namesakes(gone, new, in_any_folder=plan.rules.trace == "session")
    moved |= change.read_again(named)
    again = {path: x for path, x in plan.outdated.items() if path in readable}
    if plan.form.source == "document":
        return Replaced(moved | again.keys())
    not_cut = {path: x for path, x in again.items() if size_of(stamps[path]) >= size_of(x)}
    has_changed = {path: stamps[path] != stamp for path, stamp in not_cut.items()}
    whole = change.whole(has_changed | dict.fromkeys(moved, False))
    if not plan.form.sessions or plan.rules.trace == "session":
        return Replaced(whole)  # a trace may have its parts in several files
    return Replaced(whole, change.read_again(plan.outdated.keys() - whole))


def _tell_kept(kept: int, gone: Collection[str]) -> None:
    """Tell of how many traces not all could be read again, as files are gone."""
    if not kept:
        return
    example = f", such as {min(gone)}" if gone else ""
    warn(
        f"{count_of(kept, 'trace')} {be(kept)} made of what an earlier version of kp-batch has "
        f"read: not all of their sources could be read again{example}; if you have them elsewhere, "
        "import them again"
    )


def _known(plan: _Plan, readable: Collection[str], number: int) -> dict[str, KnownSource]:
    """The files as they are known from now on."""
    known = {**plan.known}
    for path, (stamp, sniffed) in plan.source.sniffed.new.items():
        before = known.get(path, KnownSource())
        importer = IMPORTER if before.fingerprint is None else before.importer
        known[path] = replace(before, seen=stamp, sniffed=sniffed, importer=importer)
    for path, file in plan.new.items():
        before = known.get(path, KnownSource())
        if path in readable:
            is_replaced = plan.form.source == "document" and before.fingerprint is not None
            since = number if is_replaced else before.since
            stamp = plan.source.stamps[path]
            # What an outdated one told is removed: no import has to be told of.
            since = None if path in plan.outdated else since
            known[path] = KnownSource(stamp, since, before.seen, before.sniffed, IMPORTER)
        elif before.fingerprint is not None:
            known[path] = replace(before, fingerprint=unread(file))
    return known


def forget(
    archive: str | PathLike[str], *, ids: Sequence[str] = (), files: Sequence[str] = ()
) -> Forgotten:
    """Remove traces, or records that only some files have, from an archive, and keep them out.

    Args:
        archive: its folder, or its URL in a bucket.
        ids: of traces, which no file brings back.
        files: of a source, or folders of these, wherever they are by now; other records that they
            have later count.

    Raises:
        KpBatchError: a path is empty, or nothing is kept of one of them; nothing was changed.
        ArchiveError: nothing was imported into it.
    """
    if not all(files):  # as of a variable that is not set: else it would be the folder here
        raise KpBatchError(
            "the path of what is to be forgotten is empty; nothing was changed; name a file, or a "
            "folder"
        )
    with (
        TemporaryDirectory(prefix="kp-import-") as name,
        target_of(str(archive), Path(name) / "archive").alone() as opened,
    ):
        state = ImportState.of(opened)
        form = FORMATS.get(state.format)
        if not form:
            raise ArchiveError(
                f"nothing that is known here was imported into {archive}; name an archive of "
                "kp-batch import, or install the version that made it"
            )
        rules = Rules.from_json(state.rules)
        scratch, known = Path(name) / "scratch", state.known_sources(opened)
        job = ImportJob(form, rules, scratch, state.number + 1, Workers(0))
        change = ArchiveChange(opened, state, known, job, scratch)
        traces = [form.trace_of(id_) for id_ in ids]
        paths = [file if is_url(file) else absolute(file) for file in files]
        change.check_known(traces, paths)
        return change.forget(traces, paths)
