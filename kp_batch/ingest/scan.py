"""Scans the archive: lists its files, and reads those whose content is not known yet.

These are read in parts, in parallel; see `stage`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from kp_batch.archive.sources import discover, folders_named, in_full, is_cut, path_keys
from kp_batch.errors import CUT_FILE
from kp_batch.ingest.stage import VERSION, Content, StagedPart, Unreadable, identify, stage_contents
from kp_batch.log import progress, warn
from kp_batch.novelty.settings import check_cache_by
from kp_batch.runs.run import Run
from kp_batch.runs.staging import Staging
from kp_batch.steps.step import Executor, cut, step
from kp_batch.storage.urls import is_url
from kp_batch.text import be, count_of, printable

# A file that was written this shortly before the run may be written again within the same tick of
# its clock: its times prove nothing, and the next run compares its content once more.
_SETTLED_NS = 2_000_000_000
_CUT = "it ends within a line"
_TRACE = ("trace_id", "content_hash")
_NAMED = 5  # unreadable files; the others are counted

# A part of the files: so many bytes, where a file counts as this many at the least.
_PART_BYTES, _FILE_BYTES = 64 << 20, 64 << 10
# Fewer bytes where that makes fewer parts than this, since each core carries out one; but at least
# so many, since each part becomes a file of facts in the warehouse.
_PARTS, _LEAST_BYTES = 16, 1 << 20
# Objects of a bucket are fetched once, to be identified and to be read: so many bytes at a time.
_COPIED_BYTES = 4 << 30

R = TypeVar("R")
T = TypeVar("T")
# The id of a file's content, if it could be read, and its number of rows or its fault.
FileContent = tuple[str | None, int | Unreadable]


@dataclass(frozen=True)
class ArchiveScan:
    """The archive as it is now; its ledger is `staging.table("files")`."""

    files: FileChanges
    differs: bool  # from the published ledger
    other_versions: bool = False  # whether files whose content is known have another version now
    unreadable: tuple[str, ...] = ()  # files that the last done run did not find unreadable
    gone: tuple[str, ...] = ()  # files that went since the last done run: see `gone_content`
    files_before: int = 0  # that were there then
    facts: tuple[Path, ...] = ()  # staged files of content that was not known
    texts: tuple[Path, ...] = ()  # likewise


@step("read")
def scan_archive(run: Run, executor: Executor) -> ArchiveScan:
    """Scan the archive: stages its ledger, and the facts and texts of content not known yet.

    Raises:
        ArchiveError: a name gives no file, or there is nothing by which caches are to be kept.
    """
    before = _published_ledger(run)
    sources = _sources(run, before)
    to_read = [source for source in sources if not _is_known(source, before.get(source.path))]
    contents, staged = read_new(run, to_read, executor)
    facts = tuple(chain.from_iterable(part.facts for part in staged))
    losing = _losing(run, contents, before, facts)
    now: Ledger = {}
    folders = folders_named(run.config.archive)
    for source in sources:
        last, keys = before.get(source.path), path_keys(folders, source.path)
        if source.path in contents:
            loses = source.path in losing
            entry = _entry(run, source, contents[source.path], last, loses=loses)
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
    changes = file_changes(now, before, prune=run.config.prune)
    return ArchiveScan(
        changes,
        ledger_differs,
        _has_other_versions(ledger, before),
        tuple(
            path for path in changes.unreadable if path not in before or not before[path].has_fault
        ),
        gone,
        sum(entry.status != "gone" for entry in before.values()),
        facts,
        tuple(chain.from_iterable(part.texts for part in staged)),
    )


@step("read")
def scan_published(run: Run) -> ArchiveScan:
    """Take the archive as in the published ledger; only the rows of its content are recounted."""
    before, rows = _published_ledger(run), _rows_by_content(run)
    ledger = {
        path: replace(entry, rows=rows.get(entry.file_id or "", 0))
        for path, entry in before.items()
    }
    ledger_differs = _stage_ledger(run, ledger, before)
    return ArchiveScan(file_changes(before, before, prune=False), ledger_differs)


def _check_cache_by(run: Run, ledger: Ledger) -> None:
    """Refuse names of which neither traces nor paths have a value."""
    texts = {entry.path_keys for entry in ledger.values() if entry.status != "gone"}
    check_cache_by(run.config.cache_by, {key for text in texts for key in json.loads(text)})


def _published_ledger(run: Run) -> Ledger:
    return as_ledger(run.snapshot.scan("files").collect())


def _stage_ledger(run: Run, ledger: Ledger, before: Ledger) -> bool:
    """Stage the ledger of this run; returns whether it differs from the published one."""
    as_frame(ledger.values()).write_parquet(run.staging.table("files"))
    contents, contents_before = (
        {path: entry.content for path, entry in entries.items()} for entries in (ledger, before)
    )
    return contents != contents_before


def _has_other_versions(ledger: Ledger, before: Ledger) -> bool:
    """Whether any file was compared again, and need not be if its version is remembered.

    Not one that had none: that alone is worth no publication.
    """
    versions = ((entry.version, before.get(path)) for path, entry in ledger.items())
    return any(version and last and last.version not in {"", version} for version, last in versions)


def _is_known(source: SourceFile, entry: Entry | None) -> bool:
    return (
        entry is not None
        and entry.status != "unreadable"  # its cause, a permission say, may be gone
        and entry.source == source
        and source.version != ""
        and entry.file_id is not None
        and entry.file_id.endswith(VERSION)
    )


def _losing(
    run: Run, contents: Mapping[str, FileContent], before: Ledger, staged: Sequence[Path]
) -> set[str]:
    """The paths of cut files that lack traces of their last content, which counts on then."""
    pairs = [
        (path, last.file_id, file_id)
        for path, (file_id, rows) in contents.items()
        if isinstance(rows, int) and file_id and is_cut(file_id)
        if (last := before.get(path)) and last.file_id
    ]
    if not pairs or run.config.prune:
        return set()
    cut = pl.LazyFrame(pairs, schema=["path", "last", "file_id"], orient="row")
    facts = pl.concat(
        [run.snapshot.scan("facts"), *(pl.scan_parquet(path, glob=False) for path in staged)]
    )
    traces = facts.filter(
        pl.col("file_id").is_in([file_id for _, *both in pairs for file_id in both]),
        pl.col("reasons").list.len() == 0,
    ).select("file_id", "trace_id", "content_hash")
    had = cut.join(traces, left_on="last", right_on="file_id")
    lost = had.join(cut.join(traces, on="file_id"), on=["path", *_TRACE], how="anti")
    return {*lost.select("path").collect().to_series()}


def _entry(
    run: Run, source: SourceFile, content: FileContent, last: Entry | None, *, loses: bool
) -> Entry:
    size, mtime_ns = source.size, source.mtime_ns
    version = source.version if _is_settled(run, source) else ""
    file_id, rows = content
    if loses:
        rows = Unreadable((CUT_FILE,), f"{_CUT}, and lacks traces of its last content, which stay")
    if isinstance(rows, int):
        entry = Entry(source.path, "read", size, mtime_ns, file_id, rows, version=version)
        is_whole = not file_id or not is_cut(file_id)
        return entry if is_whole else replace(entry, reasons=[CUT_FILE], message=_CUT)
    return replace(
        last or Entry(source.path, "unreadable", size, mtime_ns, None, 0),
        status="unreadable",
        size=size,
        mtime_ns=mtime_ns,
        version=version,
        reasons=list(rows.reasons),
        message=rows.message,
    )


def _is_settled(run: Run, source: SourceFile) -> bool:
    until = int(run.started_at.timestamp() * 1e9) - _SETTLED_NS
    return is_url(source.path) or max(source.mtime_ns, int(source.version or 0)) < until


def _sources(run: Run, before: Ledger) -> list[SourceFile]:
    """The archive's files. Another warehouse is left out, or a fault where its files are known."""
    warehouses: list[str] = []
    sources = discover(run.config.archive, run.config.warehouse, warehouses.append)
    for path in warehouses:
        if _in_closed_folders({}, before, {path}):
            sources.append(SourceFile(path, 0, 0, fault=IS_WAREHOUSE))
        else:
            warn(f"{printable(path)} is left out: it is a warehouse of kp_batch")
    return sources


def _in_closed_folders(now: Ledger, before: Ledger, closed: AbstractSet[str]) -> Ledger:
    """The known files of folders that cannot be read now: they are not gone."""
    return {
        path: replace(entry, status="unreadable", reasons=[], message=f"it is in {folder}")
        for path, entry in before.items()
        if path not in now and entry.file_id is not None and entry.status != "gone"
        for folder in [next((above for above in folders_above(path) if above in closed), None)]
        if folder is not None
    }


def _warn_of_unreadable(run: Run, now: Ledger, before: Ledger) -> None:
    """Name the first files and folders that cannot be read, the new ones before those known."""

    def is_repeated(entry: Entry) -> bool:
        last = before.get(entry.source_file)
        return last is not None and last.reasons == entry.reasons and last.message == entry.message

    unreadable = sorted((entry for entry in now.values() if entry.reasons), key=is_repeated)
    for entry in unreadable[:_NAMED]:
        how = "is cut: " if entry.reasons == [CUT_FILE] else "is unreadable: "
        message = f"{printable(entry.source_file)} {how}{printable(entry.message)}"
        warn(message, repeated=is_repeated(entry))
    if (more := len(unreadable) - _NAMED) > 0:
        others = f"{count_of(more, 'more file')} {be(more)} unreadable"
        message = f"{others}; a run lists all of them: {run.rejects_command}"
        warn(message, repeated=is_repeated(unreadable[_NAMED]))


def _warn_of_loss(now: Ledger, before: Ledger, gone: Sequence[str]) -> None:
    rows = sum(entry.rows for entry in now.values() if entry.status == "read")
    known = {path: entry for path, entry in before.items() if entry.status != "gone"}
    known_rows = sum(entry.rows for entry in known.values())
    lost = {
        "gone": gone,
        "unreadable": [
            f"{path}: {now[path].message}"
            for path in known
            if path in now and now[path].status == "unreadable"
        ],
    }

    def is_half(rows_before: int) -> bool:
        return rows_before > 0 and 2 * rows <= rows_before

    if is_half(known_rows):
        causes = (
            f"; {count_of(len(names), 'file')} {be(len(names))} {cause} "
            f"(such as {printable(names[0])})"
            for cause, names in lost.items()
            if names
        )
        warn(
            f"the archive has lost half of its rows or more: it holds {rows:,} now, and "
            f"held {known_rows:,}{''.join(causes)}",
            repeated=not is_half(
                sum(entry.rows for entry in known.values() if entry.status == "read")
            ),
        )


def read_new(
    run: Run, sources: Sequence[SourceFile], executor: Executor
) -> tuple[dict[str, FileContent], list[StagedPart]]:
    """Read files that are not known yet; returns their content, by path, and the staged parts."""
    if not sources:
        return {}, []
    contents: dict[str, FileContent] = {}
    staged: list[StagedPart] = []
    rows: dict[str, int | Unreadable] = {**_rows_by_content(run)}
    copied = (_with_copy(source, run.staging) for source in sources)
    for batch in cut(copied, lambda source: source.size if source.copy else 0, _COPIED_BYTES):
        for path in run.staging.fetched.iterdir():
            path.unlink()
        staged += _read_batch(run, batch, executor, contents, rows)
    return contents, staged


def _with_copy(source: SourceFile, staging: Staging) -> SourceFile:
    """The file, with the path of its copy in the run's staging if it is in a bucket."""
    if not is_url(source.path):
        return source
    name = hashlib.sha256(source.path.encode()).hexdigest()
    return replace(source, copy=str(staging.fetched / name))


def _read_batch(
    run: Run,
    sources: Sequence[SourceFile],
    executor: Executor,
    contents_by_path: dict[str, FileContent],
    rows: dict[str, int | Unreadable],
) -> list[StagedPart]:
    """Read some files: adds their content, by path, and the rows of each content."""
    parts = file_parts(sources)
    ids = list(chain.from_iterable(_shown("identifying", parts, executor.map(identify, parts))))
    unknown: dict[str, list[SourceFile]] = {}
    for source, file_id in zip(sources, ids, strict=True):
        if isinstance(file_id, str) and not isinstance(rows.get(file_id), int):
            unknown.setdefault(file_id, []).append(source)
    contents = [Content(file_id, tuple(files)) for file_id, files in unknown.items()]
    staged = _staged(run, contents, executor)
    counts = chain.from_iterable(part.rows for part in staged)
    rows |= {content.file_id: count for content, count in zip(contents, counts, strict=True)}
    contents_by_path |= {
        source.path: (file_id, rows[file_id]) if isinstance(file_id, str) else (None, file_id)
        for source, file_id in zip(sources, ids, strict=True)
    }
    return staged


def _staged(run: Run, contents: Sequence[Content], executor: Executor) -> list[StagedPart]:
    forgotten = run.snapshot.files("forgotten")
    archive = [in_full(name) for name in run.config.archive]
    parts = _cut(contents, lambda content: _size(content.sources[0]))
    staged = executor.map(stage_contents, parts, archive, forgotten, run.staging)
    return list(_shown("reading", parts, staged))


def _shown(verb: str, parts: Sequence[Sequence[object]], results: Iterable[R]) -> Iterator[R]:
    """The results of parts, one for each, while it is shown how many files are done."""
    with progress(verb, sum(map(len, parts)), "file", at_once=len(parts) > 1) as bar:
        for part, result in zip(parts, results, strict=True):
            yield result
            bar.add(len(part))


def file_parts(sources: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
    """Cut files into parts to be read."""
    return _cut(sources, _size)


def _cut(items: Sequence[T], size: Callable[[T], int]) -> list[tuple[T, ...]]:
    share = sum(map(size, items)) // _PARTS
    return list(cut(items, size, min(max(share, _LEAST_BYTES), _PART_BYTES)))


def _size(source: SourceFile) -> int:
    return max(source.size, _FILE_BYTES)


def _rows_by_content(run: Run) -> dict[str, int]:
    """The number of rows of each content that was read before, by its file_id."""
    facts = run.snapshot.scan("facts")
    if run.forgets:
        facts = facts.join(
            pl.scan_parquet(run.staging.to_forget, glob=False), on="trace_id", how="anti"
        )
    return dict(facts.group_by("file_id").len().collect(engine="streaming").iter_rows())
