"""Looks at the archive: which files it has, and what is in those whose content is not known yet.

These are read a part at a time, in parallel; see `stage`.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

import polars as pl

from kp_batch.archive.folders import IS_WAREHOUSE, SourceFile, folders_above
from kp_batch.archive.ledger import (
    Entry,
    FileChanges,
    Ledger,
    as_frame,
    as_ledger,
    file_changes,
    gone_content,
    with_gone,
)
from kp_batch.archive.sources import absolute, discover, folders_named, path_keys
from kp_batch.ingest.stage import VERSION, Content, StagedPart, Unreadable, identify, stage_contents
from kp_batch.log import progress, warn
from kp_batch.novelty.settings import check_cache_by
from kp_batch.runs.run import Run
from kp_batch.runs.staging import Staging
from kp_batch.steps.step import Executor, cut, step
from kp_batch.storage.urls import is_url, local_name
from kp_batch.text import be, count_of, printable

# A file that was written this shortly before it was looked at may be written again within the same
# tick of its clock: its time says nothing, and the next run looks at its content once more.
_SETTLED_NS = 2_000_000_000
_NAMED = 5  # unreadable files; the others are counted

# A part of the files: so many bytes, each file counting as this many at the least.
_PART_BYTES, _FILE_BYTES = 64 << 20, 64 << 10
# Fewer where there are not so many parts, since each core carries out one; and yet this many, since
# each part leaves a file of facts in the warehouse.
_PARTS, _LEAST_BYTES = 16, 1 << 20
# Objects of a bucket are fetched once, to be identified and to be read: so many bytes at a time.
_COPIED_BYTES = 4 << 30

T = TypeVar("T")


@dataclass(frozen=True)
class ArchiveScan:
    """The archive as it is now; its ledger is `staging.table("files")`."""

    files: FileChanges
    differs: bool  # from what the published ledger says
    gone: tuple[str, ...] = ()  # files that went since the last done run: see `gone_content`
    files_before: int = 0  # that were there then
    facts: tuple[Path, ...] = ()  # staged files of content that was not known
    texts: tuple[Path, ...] = ()  # likewise


@dataclass(frozen=True)
class FileContent:
    """What a file holds: its content, if it could be read, and the rows or why it has none."""

    file_id: str | None
    rows: int | Unreadable


@step("read")
def scan_archive(run: Run, executor: Executor) -> ArchiveScan:
    """Look at the archive: stages its ledger, and the facts and texts of content not known yet.

    Args:
        run: the run.
        executor: reads the files.

    Raises:
        ArchiveError: a name gives no file, or there is nothing by which caches are to be kept.
    """
    before = _published_ledger(run)
    sources = _sources(run, before)
    to_read = [source for source in sources if not _is_known(source, before.get(source.path))]
    contents, staged = read_new(run, to_read, executor)
    now: Ledger = {}
    folders = folders_named(run.config.archive)
    for source in sources:
        last, keys = before.get(source.path), path_keys(folders, source.path)
        if source.path in contents:
            entry = _entry(run, source, contents[source.path], last)
            now[source.path] = replace(entry, path_keys=keys)
        elif last is not None:  # it is known
            now[source.path] = replace(last, status="read", path_keys=keys)
    now |= _in_closed_folders(now, before, {source.path for source in sources if source.fault})
    _warn_of_unreadable(run, now, before)
    gone = gone_content(now, before)
    _warn_of_loss(now, before, gone)
    ledger = with_gone(now, before, prune=run.config.prune)
    _check_cache_by(run, ledger)
    ledger_differs = _stage_ledger(run, ledger, before)
    return ArchiveScan(
        file_changes(now, before, prune=run.config.prune),
        ledger_differs,
        gone,
        sum(each.status != "gone" for each in before.values()),
        tuple(chain.from_iterable(part.facts for part in staged)),
        tuple(chain.from_iterable(part.texts for part in staged)),
    )


@step("read")
def scan_published(run: Run) -> ArchiveScan:
    """Take the archive as it was last seen: only the rows of its content are counted again."""
    before, rows = _published_ledger(run), _rows_by_content(run)
    counted = {
        path: replace(each, rows=rows.get(each.file_id or "", 0)) for path, each in before.items()
    }
    ledger_differs = _stage_ledger(run, counted, before)
    return ArchiveScan(file_changes(before, before, prune=False), ledger_differs)


def _check_cache_by(run: Run, ledger: Ledger) -> None:
    """Refuse names of which neither traces nor paths have a value."""
    texts = {each.path_keys for each in ledger.values() if each.status != "gone"}
    check_cache_by(run.config.cache_by, {key for text in texts for key in json.loads(text)})


def _published_ledger(run: Run) -> Ledger:
    return as_ledger(run.snapshot.scan("files").collect())


def _stage_ledger(run: Run, ledger: Ledger, before: Ledger) -> bool:
    """Stage the ledger as the run will leave it; returns whether it differs from the published."""
    as_frame(ledger.values()).write_parquet(run.staging.table("files"))
    now, then = ({path: each.content for path, each in x.items()} for x in (ledger, before))
    return now != then


def _is_known(source: SourceFile, entry: Entry | None) -> bool:
    return (
        entry is not None
        and entry.status != "unreadable"  # its cause, a permission say, may be gone
        and entry.source == source
        and source.mtime_ns != 0
        and entry.file_id is not None
        and entry.file_id.endswith(VERSION)
    )


def _entry(run: Run, source: SourceFile, content: FileContent, last: Entry | None) -> Entry:
    """The ledger's entry of a file that was looked at."""
    old = source.mtime_ns < int(run.started_at.timestamp() * 1e9) - _SETTLED_NS
    mtime_ns = source.mtime_ns if old or source.etag else 0
    size, etag = source.size, source.etag
    if isinstance(content.rows, int):
        return Entry(source.path, "read", size, mtime_ns, content.file_id, content.rows, etag=etag)
    return replace(
        last or Entry(source.path, "unreadable", size, mtime_ns, None, 0),
        status="unreadable",
        size=size,
        mtime_ns=mtime_ns,
        etag=etag,
        reasons=list(content.rows.reasons),
        message=content.rows.message,
    )


def _sources(run: Run, before: Ledger) -> list[SourceFile]:
    """The archive's files. Another warehouse is none of it, or a fault where files were known."""
    warehouses: list[str] = []
    sources = discover(run.config.archive, run.config.warehouse, warehouses.append)
    for path in warehouses:
        if _in_closed_folders({}, before, {path}):
            sources.append(SourceFile(path, 0, 0, fault=IS_WAREHOUSE))
        else:
            warn(f"{printable(path)} is left out: it is a warehouse of kp_batch")
    return sources


def _in_closed_folders(now: Ledger, before: Ledger, closed: AbstractSet[str]) -> Ledger:
    """The files that are known to stand in folders which cannot be read now: they are not gone."""
    return {
        path: replace(each, status="unreadable", reasons=[], message=f"it is in {folder}")
        for path, each in before.items()
        if path not in now and each.file_id is not None and each.status != "gone"
        for folder in [next((above for above in folders_above(path) if above in closed), None)]
        if folder is not None
    }


def _warn_of_unreadable(run: Run, now: Ledger, before: Ledger) -> None:
    """Name the first files and folders that cannot be read, and count the others.

    Those come first that the last done run did not find so.
    """

    def is_repeated(entry: Entry) -> bool:
        last = before.get(entry.source_file)
        return last is not None and last.reasons == entry.reasons and last.message == entry.message

    unreadable = sorted((each for each in now.values() if each.reasons), key=is_repeated)
    for each in unreadable[:_NAMED]:
        what = f"{printable(each.source_file)} is unreadable: {printable(each.message)}"
        warn(what, repeated=is_repeated(each))
    if (more := len(unreadable) - _NAMED) > 0:
        others = f"{count_of(more, 'more file')} {be(more)} unreadable"
        what = f"{others}; a run lists all of them: {run.rejects_command}"
        warn(what, repeated=is_repeated(unreadable[_NAMED]))


def _warn_of_loss(now: Ledger, before: Ledger, gone: Sequence[str]) -> None:
    rows = sum(each.rows for each in now.values() if each.status == "read")
    known = {path: each for path, each in before.items() if each.status != "gone"}
    held = sum(each.rows for each in known.values())
    lost = {
        "gone": gone,
        "unreadable": [
            f"{path}: {now[path].message}"
            for path in known
            if path in now and now[path].status == "unreadable"
        ],
    }

    def is_half(held: int) -> bool:
        return held > 0 and 2 * rows <= held

    if is_half(held):
        causes = (
            f"; {count_of(len(names), 'file')} {be(len(names))} {cause} "
            f"(such as {printable(names[0])})"
            for cause, names in lost.items()
            if names
        )
        warn(
            f"the archive has lost half of its rows or more: it holds {rows:,} now, and "
            f"held {held:,}{''.join(causes)}",
            repeated=not is_half(
                sum(each.rows for each in known.values() if each.status == "read")
            ),
        )


def read_new(
    run: Run, sources: Sequence[SourceFile], executor: Executor
) -> tuple[dict[str, FileContent], list[StagedPart]]:
    """Read what is not known yet: what each file holds, by its path, and what was staged of it."""
    if not sources:
        return {}, []
    contents: dict[str, FileContent] = {}
    staged: list[StagedPart] = []
    rows: dict[str, int | Unreadable] = {**_rows_by_content(run)}
    copied = (_with_copy(source, run.staging) for source in sources)
    for some in cut(copied, lambda each: each.size if each.copy else 0, _COPIED_BYTES):
        for path in run.staging.fetched.iterdir():
            path.unlink()
        staged += _read_some(run, some, executor, contents, rows)
    return contents, staged


def _with_copy(source: SourceFile, staging: Staging) -> SourceFile:
    """The file, to be kept in the run's staging once it is fetched from its bucket."""
    if not is_url(source.path):
        return source
    name = hashlib.sha256(source.path.encode()).hexdigest()
    return replace(source, copy=str(staging.fetched / name))


def _read_some(
    run: Run,
    sources: Sequence[SourceFile],
    executor: Executor,
    contents_by_path: dict[str, FileContent],
    rows: dict[str, int | Unreadable],
) -> list[StagedPart]:
    """Read some files: adds what each holds, by its path, and the rows of each content."""
    ids = _identified(sources, executor)
    unknown: dict[str, list[SourceFile]] = {}
    for source, file_id in zip(sources, ids, strict=True):
        if isinstance(file_id, str) and not isinstance(rows.get(file_id), int):
            unknown.setdefault(file_id, []).append(source)
    contents = [Content(file_id, tuple(files)) for file_id, files in unknown.items()]
    staged = _staged(run, contents, executor)
    for part, made in staged:
        rows |= {each.file_id: count for each, count in zip(part, made.rows, strict=True)}
    contents_by_path |= {
        source.path: FileContent(file_id, rows[file_id])
        if isinstance(file_id, str)
        else FileContent(None, file_id)
        for source, file_id in zip(sources, ids, strict=True)
    }
    return [made for _, made in staged]


def _identified(sources: Sequence[SourceFile], executor: Executor) -> list[str | Unreadable]:
    parts = file_parts(sources)
    ids: list[str | Unreadable] = []
    with progress("identifying", len(sources), "file", at_once=len(parts) > 1) as shown:
        for part in executor.map(identify, parts):
            ids += part
            shown.add(len(part))
    return ids


def _staged(
    run: Run, contents: Sequence[Content], executor: Executor
) -> list[tuple[tuple[Content, ...], StagedPart]]:
    forgotten = run.snapshot.files("forgotten")
    archive = [name if is_url(name) else absolute(local_name(name)) for name in run.config.archive]
    parts = _cut(contents, lambda each: _size(each.sources[0]))
    staged: list[StagedPart] = []
    with progress("reading", len(contents), "file", at_once=len(parts) > 1) as shown:
        for part in executor.map(stage_contents, parts, archive, forgotten, run.staging):
            staged.append(part)
            shown.add(len(part.rows))
    return list(zip(parts, staged, strict=True))


def file_parts(sources: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
    """Cut files into parts to be read."""
    return _cut(sources, _size)


def _cut(items: Sequence[T], size: Callable[[T], int]) -> list[tuple[T, ...]]:
    share = sum(map(size, items)) // _PARTS
    return list(cut(items, size, min(max(share, _LEAST_BYTES), _PART_BYTES)))


def _size(source: SourceFile) -> int:
    return max(source.size, _FILE_BYTES)


def _rows_by_content(run: Run) -> dict[str, int]:
    """How many rows each content has that was read before, by its file_id."""
    facts = run.snapshot.scan("facts")
    if run.forgets:
        facts = facts.join(
            pl.scan_parquet(run.staging.to_forget, glob=False), on="trace_id", how="anti"
        )
    return dict(facts.group_by("file_id").len().collect(engine="streaming").iter_rows())
