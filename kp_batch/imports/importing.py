"""Imports other systems' traces into an archive.

The archive keeps all records of its sources. So an import reads only new or changed files, and
builds only the traces that have records in them. Removing a file from a source removes no trace.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from kp_batch.conversion.apply_rules import check_rules, check_rules_decide
from kp_batch.conversion.formats import FORMATS, detect_format
from kp_batch.conversion.model import Format, Input
from kp_batch.conversion.rules import Rules
from kp_batch.errors import ArchiveError, KpBatchError
from kp_batch.imports.building import Work
from kp_batch.imports.change import MAX_WAIT, ArchiveChange, Taken, before
from kp_batch.imports.destination import Archive, target_of
from kp_batch.imports.import_limits import ImportLimits, check_limits
from kp_batch.imports.merging import Merge
from kp_batch.imports.reading import FilesRead, read_files
from kp_batch.imports.source_files import (
    Probed,
    Source,
    files_of,
    head_of,
    is_unreadable_folder,
    local_path,
    source_of,
)
from kp_batch.imports.spool import SortedRun, Spool
from kp_batch.imports.store import (
    KnownSource,
    RecordStore,
    State,
    create_store,
    is_done,
    opened_store,
)
from kp_batch.imports.summary import Imported
from kp_batch.imports.turns import build_all
from kp_batch.imports.workers import Workers
from kp_batch.log import progress
from kp_batch.steps.step import cut
from kp_batch.text import ten_of

IMPORTER = 15  # the version of how records become traces
MAX_SERIAL_BYTES = 64 << 20  # of files; larger imports use several processes
_PROCESSES = 8  # at most: one process joins their results, and cannot keep more of them busy
GROUP_BYTES = 16 << 20  # of files that one call reads
PART_BYTES = 8 << 20  # of files in a part
_PARTS = 1_024  # at most
_SKIPPED_FOR = timedelta(days=30)  # for which records of units that are not an agent's are kept


def import_traces(
    form: Format | None,
    sources: Sequence[str],
    archive: str | PathLike[str],
    rules: Rules,
    limits: ImportLimits = ImportLimits(),  # noqa: B008 (it is frozen)
) -> Imported:
    """Import traces; see `Format` and `Rules`.

    Known files are not read again. If the rules or the version of the importer changed, all traces
    are built again from the archive's records.

    Args:
        form: format of the sources; None for the archive's, or, for a new archive, the files'.
        sources: files, folders of files, or URLs of these.
        archive: folder of the archive, or its URL in a bucket; created if it is missing.
        rules: decide what the format does not.
        limits: limits on what is refused.

    Raises:
        KpBatchError: the rules leave something open, or name what the sources do not have; the
            archive has another format, or the files' format is unclear; or a limit is exceeded, in
            which case only the archive's lists of refusals change.
        ArchiveError: there is no file of the format.
    """
    with TemporaryDirectory(prefix="kp-import-") as name:
        target = target_of(str(archive), Path(name) / "archive")
        files = files_of(sources, str(archive))
        snapshot = target.snapshot()
        with opened_store(snapshot) as store:
            plan = _ImportPlan.of(snapshot, store, form, files, rules)
            check_rules(plan.form, rules)
            if not plan.source.inputs:
                raise ArchiveError(
                    f"there is no file of {plan.form.name} at {', '.join(sources)}; check the "
                    "path, or name another format"
                )
            if plan.is_empty(store):
                return plan.unchanged_result(store)
        with target.alone() as opened:
            create_store(opened)
            with opened_store(opened) as store:
                assert store  # noqa: S101 (it was made)
                return _Import(plan.at(opened, store), store, Path(name), limits).run()


@dataclass(frozen=True)
class _ImportPlan:
    """What an import must do: the files of its sources, and those that the archive knows."""

    archive: Archive
    form: Format
    rules: Rules
    state: State
    known: Mapping[str, KnownSource]
    source: Source

    @classmethod
    def of(
        cls,
        archive: Archive,
        store: RecordStore | None,
        form: Format | None,
        files: Mapping[str, str],
        rules: Rules,
    ) -> "_ImportPlan":
        state = store.state if store else State()
        form = form or FORMATS.get(state.format)
        form = form or detect_format([*files], lambda path: head_of(path, files[path]), local_path)
        _check_format(archive, state, form)
        known = store.known_sources() if store else {}
        probed = known if state.importer == IMPORTER else {}
        source = source_of(form, files, Probed(form, files, probed))
        return cls(archive, form, rules, state, known, source)

    def at(self, archive: Archive, store: RecordStore) -> "_ImportPlan":
        """Return the plan for the locked archive: another import may have changed it until then."""
        state, known = store.state, store.known_sources()
        _check_format(archive, state, self.form)
        return replace(self, archive=archive, state=state, known=known)

    @cached_property
    def new(self) -> Mapping[str, Input]:
        """The files to read, new and changed ones, in the order of their paths."""
        stamps = {path: each.stamp for path, each in self.known.items()}
        changed = sorted(x for x, now in self.source.stamps.items() if stamps.get(x) != now)
        return {path: self.source.inputs[path] for path in changed}

    @property
    def rebuilds_all(self) -> bool:
        """Whether all traces must be built again."""
        made = self.state.importer, self.state.rules
        return bool(self.state.format) and made != (IMPORTER, self.rules.as_json())

    def is_empty(self, store: RecordStore | None) -> bool:
        """Whether there is nothing to do, so the archive need not be locked."""
        if not store or self.new or self.rebuilds_all or self.state.unreadable_folders:
            return False
        is_due = store.expired(before(_SKIPPED_FOR)) or self.overdue(store)
        return is_done(self.archive, self.state.number) and not is_due

    def overdue(self, store: RecordStore) -> Sequence[str]:
        """Return the units that have waited for their root long enough."""
        return store.waiting(before(MAX_WAIT)) if self.rules.root else ()

    @property
    def next_state(self) -> State:
        """The state of the archive after this import."""
        return State(
            self.form.name,
            IMPORTER,
            self.rules.as_json(),
            self.state.number + max(len(self.new), 1),
            sum(map(is_unreadable_folder, self.source.inputs)),
        )

    def ids(self) -> dict[str, int]:
        """Return the ids in the store of the files that it knows, or will know."""
        ids = {path: each.id for path, each in self.known.items()}
        paths = {**self.new, **self.source.probed.new}
        first = max(ids.values(), default=0) + 1
        return ids | {path: first + x for x, path in enumerate(sorted(paths.keys() - ids.keys()))}

    def unchanged_result(self, store: RecordStore | None) -> Imported:
        """Return the result of an import that reads nothing."""
        return Imported(
            files=len(self.source.inputs),
            unresolved=store.unresolved() if store else {},
            rules=json.loads(self.rules.as_json()),
        )


def _check_format(archive: Archive, state: State, form: Format) -> None:
    if state.format not in ("", form.name):
        raise KpBatchError(
            f"{archive.name} has traces of {state.format}, and an archive has only one format; "
            "name another folder (a run can read several archives)"
        )


class _Import:
    """Carries out a plan, while the archive is locked."""

    def __init__(
        self, plan: _ImportPlan, store: RecordStore, folder: Path, limits: ImportLimits
    ) -> None:
        self._plan, self._store, self._folder, self._limits = plan, store, folder, limits
        self._ids = plan.ids()
        paths = {id_: path for path, id_ in self._ids.items()}
        scratch = folder / "built.sqlite"
        self._change = ArchiveChange(plan.archive, store, plan.form, paths, scratch)
        self._size = sum(plan.source.sizes[path] for path in plan.new) + self._kept_bytes
        self._parts = min(1 + self._size // PART_BYTES, _PARTS)

    def run(self) -> Imported:
        """Read, build, store."""
        plan, store, taken = self._plan, self._store, self._change.taken
        with Workers(self._processes) as workers:
            readable, void, runs = self._read(workers)
            deleted = self._count_before(readable) if plan.form.source == "registry" else 0
            self._build(workers, runs, void, readable)
        unresolved = self._checked()
        expired = before(_SKIPPED_FOR)
        return replace(
            plan.unchanged_result(store),
            traces=taken.traces,
            files_read=len(plan.new),
            refused=dict(taken.refusals.refused),
            waiting=dict(taken.refusals.waiting),
            unresolved=unresolved,
            skipped=dict(taken.skipped),
            expired=self._change.count_expired(expired),
            deleted=max(deleted - taken.seen_again, 0),
            unmapped_domains=dict(taken.counts.unmapped),
            files_changed=self._change.store(
                plan.next_state,
                self._sources(readable),
                expired=expired,
                is_done=is_done(plan.archive, plan.state.number),
            ),
        )

    @property
    def _processes(self) -> int:
        """The number of worker processes; starting one takes a second."""
        is_known = FORMATS.get(self._plan.form.name) is self._plan.form
        is_large = self._size > MAX_SERIAL_BYTES
        return min(pl.thread_pool_size(), _PROCESSES) if is_known and is_large else 0

    @property
    def _kept_bytes(self) -> int:
        """The size of the records of units that are rebuilt though nothing new of them is read."""
        plan = self._plan
        if is_done(plan.archive, plan.state.number) and not plan.rebuilds_all:
            return 0
        first = 0 if plan.rebuilds_all else plan.state.number
        query = "SELECT coalesce(sum(bytes), 0) FROM units WHERE number >= ?"
        return int(self._store.values(query, first)[0])

    def _read(self, workers: Workers) -> tuple[set[str], frozenset[int], Sequence[SortedRun]]:
        """Read files; return the readable ones, the ids of the others, and runs of records."""
        plan, readable, runs, void = self._plan, set[str](), list[SortedRun](), set[int]()
        sizes, first = plan.source.sizes, plan.state.number + 1
        numbers = {path: (self._ids[path], first + place) for place, path in enumerate(plan.new)}
        groups = list(cut(plan.new.values(), lambda file: sizes[file.path], GROUP_BYTES))
        begun = [
            workers.submit(
                read_files,
                plan.form,
                [file for file in group if not file.refused],
                {file.path: numbers[file.path] for file in group},
                Spool(self._folder / "read" / f"{place}", self._parts),
            )
            for place, group in enumerate(groups)
        ]
        with progress("reading", len(plan.new), "file") as bar:
            for group, read in zip(groups, begun, strict=True):
                faults = self._take(group, answer := read())
                void |= {self._ids[path] for path in faults}
                readable |= {file.path for file in group} - faults.keys()
                runs += answer.runs
                bar.add(len(group))
        return readable, frozenset(void), runs

    def _take(self, group: Sequence[Input], read: FilesRead) -> Mapping[str, object]:
        faults = {file.path: file.refused for file in group if file.refused} | {**read.faults}
        for path, fault in faults.items():
            self._change.refuse(fault, path, is_file=True)
        for path, item in read.dropped:
            self._change.drop(item, path)
        return faults

    def _build(
        self, workers: Workers, runs: Sequence[SortedRun], void: frozenset[int], readable: set[str]
    ) -> None:
        """Build the units that have new records, and those to rebuild for other reasons."""
        plan = self._plan
        read = {self._ids[path] for path in readable}
        work = Work(
            form=plan.form,
            rules=plan.rules,
            merge=Merge(plan.state.number + 1, plan.form.source, frozenset(read)),
            number=plan.next_state.number,
            store=self._store.path,
            runs=runs,
            void=void,
            now=before(timedelta(0)),
            overdue_since=before(MAX_WAIT),
            parts=self._parts,
            folder=self._folder / "turns",
        )
        build_all(self._change, workers, work, self._touched(read))

    def _touched(self, read: set[int]) -> Iterator[str]:
        """Yield the units to build even if nothing new of them was read, each once."""
        plan, store = self._plan, self._store
        if plan.rebuilds_all:
            yield from store.values("SELECT name FROM units")
            return
        names = {*plan.overdue(store)}
        if plan.form.source == "document":
            known = read & {each.id for each in plan.known.values() if each.stamp is not None}
            names |= {unit.name for unit in store.units_of_files(known)}
        if not is_done(plan.archive, plan.state.number):
            names |= {*store.built_by(plan.state.number)}
        yield from sorted(names)

    def _count_before(self, readable: set[str]) -> int:
        """Count the traces that the files had before they were read again, by file."""
        read = {self._ids[path] for path in readable}
        return sum(len(read & {*unit.files}) for unit in self._store.units_of_files(read))

    def _checked(self) -> dict[str, int]:
        """List the refusals; return how many of each kind there are in all.

        Raises:
            KpBatchError: the rules leave something open, or a limit is exceeded.
        """
        plan, taken = self._plan, self._change.taken
        if plan.rebuilds_all or not plan.state.format:
            _check_names(plan.rules, taken)
        if not taken.traces:
            check_rules_decide(plan.form, plan.rules, taken.refusals.refused)
        unresolved = self._change.list_refusals(plan.new)
        check_limits(self._limits, taken.refusals, taken.traces, len(plan.source.inputs))
        return unresolved

    def _sources(self, readable: set[str]) -> dict[str, KnownSource]:
        """Return the sources whose state has changed."""
        plan, changed = self._plan, dict[str, KnownSource]()
        for path, (stamp, probed) in plan.source.probed.new.items():
            known = plan.known.get(path, KnownSource(self._ids[path]))
            changed[path] = replace(known, seen=stamp, probed=probed)
        for path in plan.new:
            known = changed.get(path) or plan.known.get(path, KnownSource(self._ids[path]))
            if path in readable:
                changed[path] = replace(known, stamp=plan.source.stamps[path])
            elif known.stamp is not None:
                changed[path] = replace(known, stamp="")
        return changed


def _check_names(rules: Rules, taken: Taken) -> None:
    """Refuse rules that name a score or a field that no trace has, if traces have others.

    Raises:
        KpBatchError: rules name unknown scores or fields; the message names all of them.
    """
    success, confidence, domain = rules.success, rules.confidence, rules.task_domain
    scores, fields = taken.counts.scores, taken.counts.fields
    # If another domain covers all else, a field that only some traces have may be missing.
    named = (
        ("score", success and success.score, scores),
        ("score", confidence and confidence.score, scores),
        ("field", domain and domain.otherwise is None and domain.source, fields),
        ("field", rules.agent_id, fields),
    )
    faults = [
        f"no {kind} {name!r}; the source has: {ten_of(sorted(names))}"
        for kind, name, names in named
        if name and names and name not in names
    ]
    if faults:
        raise KpBatchError("; ".join(faults))
