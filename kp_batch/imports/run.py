"""Imports other systems' traces into an archive, and takes back what is to be forgotten.

What a source told is kept, so an import reads only what is new or changed in it, and builds the
traces of which that tells anew. What is gone from a source takes nothing away.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import polars as pl

from kp_batch.archive.sources import absolute
from kp_batch.errors import ArchiveError, KpBatchError
from kp_batch.imports.apply_rules import check_rules, check_same_traces
from kp_batch.imports.archive import Archive, target_of
from kp_batch.imports.change import ArchiveChange, Forgotten, is_expired
from kp_batch.imports.formats import FORMATS, detect_format
from kp_batch.imports.job import ImportJob
from kp_batch.imports.limits import ImportLimits, check_limits
from kp_batch.imports.model import Format, Input
from kp_batch.imports.rejects import NAMES
from kp_batch.imports.rules import Rules
from kp_batch.imports.sorted_runs import RUN_BYTES
from kp_batch.imports.sources import (
    Sniffed,
    Source,
    content_of,
    files_of,
    is_closed,
    local_path,
    newer,
    source_of,
    unread,
)
from kp_batch.imports.state import ImportState, KnownSource, state_file
from kp_batch.imports.workers import Workers
from kp_batch.log import progress
from kp_batch.storage.urls import is_url
from kp_batch.text import count_of, shortened

IMPORTER = 6  # the version of how records become traces
_LARGE = 64 << 20  # bytes
_PROCESSES = 8  # at the most: what one process brings together keeps no more of them busy
_PACKED = 20  # bytes that a byte of kept records was, about


@dataclass(frozen=True)
class Imported:
    """What an import has come to."""

    traces: int  # new ones, and those of which something new is told
    files: int  # of the sources
    files_read: int  # of these: new or changed ones
    files_changed: int  # of the archive
    refused: dict[str, int]  # by reason; see `_refused.jsonl` in the archive
    waiting: dict[str, int]  # likewise; see `_waiting.jsonl`
    standing: dict[str, int]  # how many are `refused` and `waiting` in all, of earlier imports too
    passed_over: dict[str, int]  # what is no agent's trace, by what it is
    expired: int  # traces among these whose records were kept long enough
    deleted: int  # traces that a registry has no more; they stay
    unmapped_domains: dict[str, int]  # values that the map of domains lacks
    rules: dict[str, Any]


def import_traces(
    form: Format | None,
    sources: Sequence[str],
    archive: str | PathLike[str],
    rules: Rules,
    limits: ImportLimits = ImportLimits(),  # noqa: B008 (it is frozen)
) -> Imported:
    """Import traces; see `Format` and `Rules`.

    Files that are known are not read again; of a database that is known, what is new is read.
    Other rules, or another version of the importer, make all traces anew of what was read before.

    Args:
        form: of the sources; None for that of the archive, or of a new one what their files hold.
        sources: files, and folders of which all files count, or URLs of these; URLs of databases.
        archive: the folder of the archive, or its URL in a bucket; made where it is missing.
        rules: what decides where the format does not.
        limits: on what is refused.

    Raises:
        KpBatchError: the rules leave something open, or name what the sources have not; or the
            archive is of another format, or theirs is not to be told; or a limit does not allow it:
            then the archive tells what was refused, and is as it was otherwise.
        ArchiveError: there is no file of the format.
    """
    with TemporaryDirectory(prefix="kp-import-") as name:
        target = target_of(str(archive), Path(name) / "archive")
        night = _Night.of(target.snapshot(), form, files_of(sources, str(archive)), rules)
        check_rules(night.form, rules)
        check_same_traces(night.archive.name, night.state, rules)
        if not night.source.inputs:
            raise ArchiveError(f"no file of {night.form.name} at {', '.join(sources)}")
        if night.is_quiet:
            return night.nothing_done()
        with target.alone() as opened:
            return _import(night.at(opened), Path(name) / "scratch", limits)


@dataclass(frozen=True)
class _Night:
    """What an import finds."""

    archive: Archive
    form: Format
    rules: Rules
    state: ImportState
    known: Mapping[str, KnownSource]
    source: Source

    @classmethod
    def of(
        cls, archive: Archive, form: Format | None, files: Mapping[str, str], rules: Rules
    ) -> "_Night":
        state = ImportState.of(archive)
        form = form or FORMATS.get(state.format) or detect_format([*files], content_of, local_path)
        _check_format(archive, state, form)
        known = state.known_sources(archive)
        source = source_of(form, files, Sniffed(form, files, known))
        return cls(archive, form, rules, state, known, source)

    def at(self, archive: Archive) -> "_Night":
        """The same, of an archive that nobody else changes by now: another import may have."""
        state = ImportState.of(archive)
        _check_format(archive, state, self.form)
        check_same_traces(archive.name, state, self.rules)
        known = state.known_sources(archive)
        return replace(self, archive=archive, state=state, known=known)

    @cached_property
    def new(self) -> Mapping[str, Input]:
        """What is not as it is known, in the order of their paths."""
        stamps = {path: each.fingerprint or "" for path, each in self.known.items()}
        changed = sorted(x for x, now in self.source.stamps.items() if stamps.get(x) != now)
        return {path: newer(self.source.inputs[path], stamps.get(path, "")) for path in changed}

    @property
    def is_all_anew(self) -> bool:
        """Whether all traces become others than they were."""
        made_by = (self.state.importer, self.state.rules)
        return bool(self.state.format) and made_by != (IMPORTER, self.rules.as_json())

    @property
    def processes(self) -> int:
        """How many do the work: another one takes a second to begin."""
        size = sum(self.source.sizes[path] for path in self.new)
        if self.is_all_anew:
            segments = (state_file(self.archive, name) for name in self.state.segments)
            size += sum(segment.stat().st_size for segment in segments) * _PACKED
        is_known = FORMATS.get(self.form.name) is self.form
        return min(pl.thread_pool_size(), _PROCESSES) if is_known and size > _LARGE else 0

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to do, so that nobody is disturbed."""
        state = self.state
        is_due = any(is_expired(each) for each in state.skipped)
        return state.is_done and not (self.new or self.is_all_anew or state.closed or is_due)

    def nothing_done(self) -> Imported:
        """What comes of it where nothing is read."""
        return Imported(
            traces=0,
            files=len(self.source.inputs),
            files_read=0,
            files_changed=0,
            refused={},
            waiting={},
            standing={kind: self.state.standing.get(kind, 0) for kind in NAMES},
            passed_over={},
            expired=0,
            deleted=0,
            unmapped_domains={},
            rules=json.loads(self.rules.as_json()),
        )


def _check_format(archive: Archive, state: ImportState, form: Format) -> None:
    if state.format not in ("", form.name):
        raise KpBatchError(
            f"{archive.name} has traces of {state.format}, and an archive has those of one "
            "format; name another one: a run takes several"
        )


def _import(night: _Night, folder: Path, limits: ImportLimits) -> Imported:
    """Import what is new or changed; nobody else changes the archive meanwhile."""
    state = night.state.model_copy(
        update={
            "format": night.form.name,
            "importer": IMPORTER,
            "rules": night.rules.as_json(),
            "closed": sum(map(is_closed, night.source.inputs)),
        }
    )
    with Workers(night.processes) as workers:
        job = ImportJob(night.form, night.rules, folder, state.number + 1, workers)
        read = _read(job, night)
        known = _known(night, read, job.new.number)
        change = ArchiveChange(night.archive, state, known, job, folder)
        again = [path for path in read if path in night.known]
        deleted = change.no_longer_told(again) if night.form.source == "registry" else 0
        change.build(all_anew=night.is_all_anew)
    if night.is_all_anew or not night.state.format:
        job.check_names()
    standing = change.write_refusals()
    check_limits(limits, job.refusals, job.traces, len(night.source.inputs))
    return replace(
        night.nothing_done(),
        traces=job.traces,
        files_read=len(night.new),
        refused=dict(job.refusals.refused),
        waiting=dict(job.refusals.waiting),
        standing=standing,
        passed_over=dict(job.skipped),
        expired=change.expired(),
        deleted=deleted,
        unmapped_domains=dict(job.counts.unmapped),
        files_changed=change.store(),
    )


def _read(job: ImportJob, night: _Night) -> set[str]:
    """Read files; returns the paths of those that could be."""
    read: set[str] = set()
    with progress("reading", len(night.new), "file") as shown:
        groups = list(_groups(night))
        for group, could_be_read in zip(groups, job.read(groups), strict=True):
            read |= could_be_read
            shown.add(len(group))
    return read


def _groups(night: _Night) -> Iterator[list[Input]]:
    """The files to read, as many at once as fill a run of records."""
    group, size = list[Input](), 0
    for path, given in night.new.items():
        group.append(given)
        size += night.source.sizes[path]
        if size > RUN_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _known(night: _Night, read: Collection[str], number: int) -> dict[str, KnownSource]:
    """The files as they are known from now on."""
    known = {**night.known}
    for path, (seen, told) in night.source.sniffed.anew.items():
        known[path] = replace(known.get(path, KnownSource()), seen=seen, sniffed=told)
    for path, given in night.new.items():
        before = known.get(path, KnownSource())
        if path in read:
            is_replaced = night.form.source == "document" and before.fingerprint is not None
            since = number if is_replaced else before.since
            known[path] = replace(before, fingerprint=night.source.stamps[path], since=since)
        elif before.fingerprint is not None:
            known[path] = replace(before, fingerprint=unread(given))
    return known


def forget(
    archive: str | PathLike[str], *, ids: Sequence[str] = (), files: Sequence[str] = ()
) -> Forgotten:
    """Remove traces, or what files told that no other did, from an archive, and keep it out.

    Args:
        archive: its folder, or its URL in a bucket.
        ids: of traces, which no file brings back.
        files: of a source, or folders of these, wherever they are by now; that these told
            something else later counts.

    Raises:
        ArchiveError: nothing was imported into it.
    """
    with (
        TemporaryDirectory(prefix="kp-import-") as name,
        target_of(str(archive), Path(name) / "archive").alone() as opened,
    ):
        state = ImportState.of(opened)
        form = FORMATS.get(state.format)
        if not form:
            raise ArchiveError(f"nothing that is known here was imported into {archive}")
        rules = Rules.model_validate_json(state.rules)
        scratch, known = Path(name) / "scratch", state.known_sources(opened)
        job = ImportJob(form, rules, scratch, state.number + 1, Workers(0))
        change = ArchiveChange(opened, state, known, job, scratch)
        paths = [file if is_url(file) else absolute(file) for file in files]
        return change.forget([form.trace_of(each) for each in ids], paths)


_WHAT = 60  # characters: it may be a name from the source


def as_text(done: Imported, archive: str) -> str:
    """Lines for a terminal or a log.

    Args:
        done: what it has come to.
        archive: its folder, or URL.
    """
    return "\n".join(_lines(done, archive))


def forgotten_text(done: Forgotten, archive: str) -> str:
    """A line that tells what was taken back."""
    records = f", {count_of(done.records, 'record')} of sources" if done.records else ""
    return (
        f"{count_of(done.traces, 'trace')} taken back{records}; changed "
        f"{count_of(done.files_changed, 'file')} of {archive}"
    )


def _lines(done: Imported, archive: str) -> Iterator[str]:
    files = f"{done.files_read:,} of {count_of(done.files, 'file')}"
    yield f"{count_of(done.traces, 'trace')} from {files} that are new or changed"
    yield f"  changed    {count_of(done.files_changed, 'file')} of {archive}"
    if done.deleted:
        yield f"  deleted    {count_of(done.deleted, 'trace')} there; as before here"
    for title, counts in (
        ("refused", done.refused),
        ("waiting", done.waiting),
        ("passed over", done.passed_over),
        ("unmapped", done.unmapped_domains),
    ):
        for what, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
            yield f"  {title:<10} {count:,} {shortened(what, _WHAT)}"
    if done.expired:
        yield f"  expired    {count_of(done.expired, 'trace')} passed over 30 days ago"
    for name, rule in done.rules.items():
        yield f"  rule       {name}: {_rule(rule)}"
    stands = {kind: count for kind, count in done.standing.items() if count}
    if stands:
        told = ", ".join(f"{count:,} {kind}" for kind, count in stands.items())
        yield f"  standing   {told}: see {', '.join(f'{archive}/{NAMES[kind]}' for kind in stands)}"


def _rule(rule: object) -> str:
    """A rule in words: its names and values."""
    if not isinstance(rule, Mapping):
        return str(rule)
    parts = cast("Mapping[str, object]", rule).items()
    told = (f"{name} {_rule(each)}".replace(", ", "; ") for name, each in parts if each != {})
    return ", ".join(told)
