"""Imports other systems' traces into an archive; of a source, what is new or changed is read."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from kp_batch.errors import ArchiveError, KpBatchError
from kp_batch.imports.apply_rules import check_rules, check_same_traces
from kp_batch.imports.archive import Archive, place_of
from kp_batch.imports.formats import FORMATS, detect_format
from kp_batch.imports.index import BEGUN, Index, as_standing
from kp_batch.imports.job import ImportJob
from kp_batch.imports.model import Format, Input
from kp_batch.imports.rejects import NAMES, ImportLimits, check_limits
from kp_batch.imports.rules import Rules
from kp_batch.imports.sources import (
    Looks,
    Source,
    as_known,
    content_of,
    files_of,
    here,
    is_closed,
    newer,
    source_of,
    unread,
)
from kp_batch.memory import duckdb_config
from kp_batch.progress import progress, warn

IMPORTER = 4  # the version of how formats become traces
_FORMAT, _RULES = "kp_batch.format", "kp_batch.rules"
_CLOSED = "closed"  # how many folders could not be looked into


@dataclass(frozen=True)
class Imported:
    """What an import has come to."""

    traces: int  # new ones, changed ones, and those that were read again with them
    files: int  # of the sources
    files_read: int  # of these: new or changed ones
    files_changed: int  # of the archive
    left: int  # traces that stay as they were: a file that told of them is gone or damaged
    refused: dict[str, int]  # by reason; see `_refused.jsonl` in the archive
    waiting: dict[str, int]  # likewise; see `_waiting.jsonl`
    standing: dict[str, int]  # how many are `refused` and `waiting` in all, of earlier imports too
    passed_over: dict[str, int]  # what is no agent's trace, by what it is
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

    Files that are known from the last import are read again only where they tell of a trace that
    another file tells of anew; of a database that is known, what is new is read. What is gone from
    the source takes nothing away.

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
    with TemporaryDirectory(prefix="kp-import-") as name, ExitStack() as held:
        place = place_of(str(archive), Path(name) / "archive")
        files = files_of(sources, str(archive))
        index = Index.of(place.look())
        form = form or _format_of(files, index)
        check_rules(form, rules)
        work = held.enter_context(closing(ImportJob(form, rules, Path(name), here)))
        _check_format(index, work)
        source = _chosen(files, work, index)
        if not source.inputs:
            raise ArchiveError(f"no file of {form.name} at {', '.join(sources)}")
        # Nobody is disturbed, unless an import was killed: then traces may stand in two days.
        is_as_told = index.is_done and not index.standing.get(_CLOSED)
        if is_as_told and not _changed(source, _known(index, work)):
            return _imported(work, source, index.standing)
        spilling = duckdb_config(Path(name) / "spill")
        with place.alone() as opened, duckdb.connect(config=spilling) as connection:
            return _import(work, source, opened, connection, limits)


def _format_of(files: Mapping[str, str], index: Index) -> Format:
    """The format of the archive, so that no file is looked into only to find it out."""
    name = index.made_by.get(_FORMAT, "")
    return FORMATS.get(name) or detect_format([*files], content_of, here)


def _chosen(files: Mapping[str, str], work: ImportJob, index: Index) -> Source:
    """The files that are read; those that are the same are not asked again what they tell."""
    looks = Looks(work.form, files, content_of)
    if index.made_by == _made_by(work):
        looks.recall(index.archive)
    return source_of(work.form, files, looks)


def _import(
    work: ImportJob,
    source: Source,
    archive: Archive,
    connection: duckdb.DuckDBPyConnection,
    limits: ImportLimits,
) -> Imported:
    """Import what is new or changed; nobody else changes the archive meanwhile."""
    index, made_by = Index.of(archive), _made_by(work)
    _check_format(index, work)
    known = _known(index, work)
    new = {x: newer(source.inputs[x], known.get(x, "")) for x in _changed(source, known)}
    read = _read(work, new.values())
    whole = {path for path in read if not new[path].since}
    again = {x: source.inputs[x] for x in source.inputs if x not in new or x in read - whole}
    left, stale = _read_again(work, again, index, whole, connection)
    if not known:  # all is made anew, as far as it can be read
        stale |= index.stamps.keys() - read
        left |= index.traces_of(stale)
    work.decide(left, connection)
    if not known:
        work.check_names()
    standing = _write_refusals(work, archive, connection)
    check_limits(limits, work.refusals, work.tally.traces, len(source.inputs))
    blank = {path: unread(new[path]) for path in new if path in read or path in known}
    blank |= dict.fromkeys(stale, "")
    # Before any file is changed: who is killed after that reads the same files again.
    before = {**(index.made_by or made_by), **BEGUN}
    index = index.save(before, blank, (), work.units.all_files, connection)
    files_changed = work.write(archive, made_by, connection)
    source.looks.save(archive)
    done = {path: source.stamps[path] for path in read - stale}
    standing[_CLOSED] = sum(map(is_closed, source.inputs))
    told = {**made_by, **as_standing(standing)}
    index.save(told, blank | done, whole, work.units.all_files, connection)
    return _imported(work, source, standing, len(new), files_changed, len(left))


def _write_refusals(
    work: ImportJob, archive: Archive, connection: duckdb.DuckDBPyConnection
) -> dict[str, int]:
    standing = work.write_refusals(archive, connection)
    if work.refusals.left_out:
        named = " or ".join(NAMES.values())
        warn(f"{archive.name} has damaged lines in {named}; they are left out")
    return standing


def _imported(  # noqa: PLR0913, PLR0917 (all that it tells)
    work: ImportJob,
    source: Source,
    standing: Mapping[str, int],
    read: int = 0,
    changed: int = 0,
    left: int = 0,
) -> Imported:
    return Imported(
        traces=work.tally.traces,
        files=len(source.inputs),
        files_read=read,
        files_changed=changed,
        left=left,
        refused=dict(work.refusals.refused),
        waiting=dict(work.refusals.waiting),
        standing={kind: standing.get(kind, 0) for kind in NAMES},
        passed_over=dict(work.tally.passed_over),
        unmapped_domains=dict(work.tally.unmapped),
        rules=json.loads(work.rules.as_json()),
    )


def _made_by(work: ImportJob) -> dict[str, str]:
    """The metadata of what an import writes."""
    return {
        _FORMAT: work.form.name,
        "kp_batch.importer": str(IMPORTER),
        _RULES: work.rules.as_json(),
    }


def _known(index: Index, work: ImportJob) -> Mapping[str, str]:
    """The stamps of what was read; of nothing, where it becomes other traces now."""
    return index.stamps if index.made_by == _made_by(work) else {}


def _changed(source: Source, known: Mapping[str, str]) -> list[str]:
    """The files that are not as they are known, in the order of their paths."""
    return sorted(path for path, stamp in source.stamps.items() if known.get(path) != stamp)


def _check_format(index: Index, work: ImportJob) -> None:
    before = index.made_by.get(_FORMAT, work.form.name)
    if before != work.form.name:
        raise KpBatchError(
            f"{index.archive.name} has traces of {before}, and an archive has those of one format; "
            "name another one: a run takes several"
        )
    check_same_traces(index.archive.name, index.made_by.get(_RULES), work.rules)


def _read(work: ImportJob, inputs: Collection[Input]) -> set[str]:
    """Read files; returns the paths of those that could be."""
    read: set[str] = set()
    with progress("reading", len(inputs), "file") as shown:
        for each in inputs:
            if work.read(each):
                read.add(each.path)
            shown.add(1)
    return read


def _read_again(
    work: ImportJob,
    again: Mapping[str, Input],
    index: Index,
    whole: Collection[str],
    connection: duckdb.DuckDBPyConnection,
) -> tuple[set[str], set[str]]:
    """Read what other files tell of the same traces.

    Returns:
        The traces that cannot be read again as a whole, as a file is gone, damaged, or another one
        by now; and the known files that for this have to be read again as soon as they can be.
    """
    left: set[str] = set()
    stale: set[str] = set()
    for path, still, traces in index.also_told(work.units.all_files, whole, connection):
        given = again.get(path) if still else None
        if still and given is None:  # imported before, from other sources
            given = as_known(work.form, path, index.stamps[path])
        told = work.read_again(given, traces) if given else None
        left |= traces - (told or set())
        if still and told is None:  # one that tells of them no more has nothing to tell again
            stale.add(path)
    return left, stale
