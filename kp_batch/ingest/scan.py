"""Scans the archive: lists its files, and reads those whose content is not known yet.

New files are read in parts, in parallel; see `stage`.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, compress
from pathlib import Path
from shlex import quote
from typing import TypeVar

import polars as pl

from kp_batch.archive.excluding import Excluded, Exclusion
from kp_batch.archive.folders import IS_WAREHOUSE, SourceFile
from kp_batch.archive.ledger import (
    FileChanges,
    file_changes,
    gone_content,
    has_other_versions,
    in_unreadable_folders,
    is_same_ledger,
    is_there,
    new_faults,
    with_away,
    without,
)
from kp_batch.archive.sources import discover, folders_named, in_full, is_cut, path_keys
from kp_batch.errors import CUT_FILE, ArchiveError
from kp_batch.files import MTIME_MARGIN_NS, atomic_write
from kp_batch.ingest.stage import (
    VERSION,
    NewContent,
    StagedPart,
    Unreadable,
    content_of,
    identify,
    stage_contents,
)
from kp_batch.log import progress, warn
from kp_batch.novelty.cache_settings import check_cache_by
from kp_batch.runs.run import Run, last_archive
from kp_batch.schemas import FILES
from kp_batch.steps.step import Executor, cut, step
from kp_batch.storage.urls import is_url
from kp_batch.text import be, count_of, printable
from kp_batch.warehouse.staging import Staging

_CUT = "it ends within a line"
_TRACE = ("trace_id", "content_hash")
_IDENTITY = ("size", "mtime_ns", "version")
_SEEN = {name: FILES[name] for name in ("source_file", *_IDENTITY, "path_keys")}
_READ = {
    "source_file": FILES["source_file"],
    "new_id": FILES["file_id"],
    "new_rows": FILES["rows"],
    "new_reasons": FILES["reasons"],
    "new_message": FILES["message"],
}
_NAMED = 5  # unreadable files in a message; the others are counted

MAX_PART_BYTES = 64 << 20  # of the files that one task reads
_FILE_BYTES = 64 << 10  # what each smaller file counts as
# With fewer parts than this, use fewer bytes, since each core does one part; but at least this
# many, since each part becomes a file of facts in the warehouse.
_PARTS, _LEAST_BYTES = 16, 1 << 20
# Objects of a bucket are fetched once, to identify and to read them, in batches of this size.
DOWNLOAD_BATCH_BYTES = 4 << 30

R = TypeVar("R")
T = TypeVar("T")
# The id of a file's content, if it could be read, and its number of rows or its fault.
FileContent = tuple[str | None, int | Unreadable]


@dataclass(frozen=True)
class ArchiveScan:
    """The archive as it is now; its ledger is `staging.table("files")`."""

    files: FileChanges
    differs: bool  # from the published ledger
    other_versions: bool = False  # whether files with known content have another version now
    unreadable: tuple[str, ...] = ()  # files that were readable in the last successful run
    gone: tuple[str, ...] = ()  # files that are gone since the last done run: see `gone_content`
    files_before: int = 0  # number of files then
    facts: tuple[Path, ...] = ()  # staged facts of new content
    texts: tuple[Path, ...] = ()  # staged texts of new content


@step("read")
def scan_archive(run: Run, executor: Executor) -> ArchiveScan:
    """Scan the archive: stage its ledger, and the facts and texts of new content.

    Raises:
        ArchiveError: a name matches no file, or there is no value to split caches by.
    """
    before = run.snapshot.scan("files").collect()
    excluded = Excluded(Exclusion(run.config.exclude, run.config.archive))
    sources = _sources(run, before, excluded)
    listed = _listed(run, sources, before)
    contents, staged = read_new(run, [*compress(sources, ~listed["is_known"])], executor)
    facts = tuple(chain.from_iterable(part.facts for part in staged))
    present = _present(listed, _content_frame(contents, _losing(run, contents, before, facts)))
    faulty = {source.path for source in sources if source.fault}
    expected = without(before, excluded.paths)
    now = pl.concat([present, in_unreadable_folders(present, expected, faulty)])
    _warn_of_unreadable(run, now, before)
    gone = gone_content(now, expected)
    _warn_of_loss(now, expected, gone)
    ledger = with_away(now, before, excluded.paths, prune=run.config.prune)
    _check_cache_by(run, ledger)
    _stage_ledger(run, ledger)
    return ArchiveScan(
        files=file_changes(now, before, excluded.paths, prune=run.config.prune),
        differs=not is_same_ledger(ledger, before),
        other_versions=has_other_versions(ledger, before),
        unreadable=new_faults(now, before),
        gone=gone,
        files_before=len(expected.filter(pl.col("status") != "gone")),
        facts=facts,
        texts=tuple(chain.from_iterable(part.texts for part in staged)),
    )


@step("read")
def scan_file(run: Run, source: SourceFile, executor: Executor) -> ArchiveScan:
    """Scan the only file of a new warehouse's archive, which its user did not name.

    Raises:
        ArchiveError: it cannot be read; the message says why, and names no file.
        SettingError: there is no value to split caches by.
    """
    contents, staged = read_new(run, [source], executor)
    [(_, rows)] = contents.values()
    if isinstance(rows, Unreadable):
        raise ArchiveError(
            f"the traces cannot be scored: {rows.message}; see docs/reference/input.md for the "
            "columns of a trace, and docs/how-to/notebook.md to make them from flat columns"
        )
    nothing = FILES.to_frame()
    ledger = _present(_listed(run, [source], nothing), _content_frame(contents, set()))
    check_cache_by(run.config.cache_by, (), named="cache_by")
    _stage_ledger(run, ledger)
    return ArchiveScan(
        files=file_changes(ledger, nothing, prune=False),
        differs=True,
        facts=tuple(chain.from_iterable(part.facts for part in staged)),
        texts=tuple(chain.from_iterable(part.texts for part in staged)),
    )


@step("read")
def scan_published(run: Run) -> ArchiveScan:
    """Return the archive of the published ledger; only the rows of its content are recounted."""
    before = run.snapshot.scan("files").collect()
    rows = _rows_by_content(run)
    counted = before.drop("rows").join(rows, on="file_id", how="left")
    has_content = pl.col("file_id").is_not_null()
    rows_now = pl.when(has_content).then(pl.col("rows").fill_null(0))
    _stage_ledger(run, counted.with_columns(rows=rows_now))
    return ArchiveScan(file_changes(before, before, prune=False), differs=False)


def _check_cache_by(run: Run, ledger: pl.DataFrame) -> None:
    """Refuse names for which neither traces nor paths have a value."""
    texts = ledger.filter(is_there()).get_column("path_keys").unique()
    check_cache_by(run.config.cache_by, {key for text in texts for key in json.loads(text)})


def _stage_ledger(run: Run, ledger: pl.DataFrame) -> None:
    rows = ledger.select(list(FILES)).cast(FILES)
    with atomic_write(run.staging.table("files")) as written:  # a failing run publishes it, too
        rows.sort("source_file").write_parquet(written)


def _listed(run: Run, sources: Sequence[SourceFile], before: pl.DataFrame) -> pl.DataFrame:
    """Join the present files with their ledger entries, and mark those with known content."""
    folders = folders_named(run.config.archive)
    files = pl.DataFrame(
        [
            (file.path, file.size, file.mtime_ns, file.version, path_keys(folders, file.path))
            for file in sources
        ],
        schema=_SEEN,
        orient="row",
    )
    until = int(run.started_at.timestamp() * 1e9) - MTIME_MARGIN_NS
    ctime_ns = pl.col("version").cast(pl.Int64, strict=False)
    is_object = pl.Series([is_url(file.path) for file in sources], dtype=pl.Boolean)
    listed = files.with_columns(
        is_stable=is_object | (pl.max_horizontal("mtime_ns", ctime_ns) < until)
    ).join(before, on="source_file", how="left", suffix="_last", maintain_order="left")
    is_known = (
        (pl.col("status") != "unreadable")  # its cause may be gone, for example a permission
        & pl.all_horizontal(pl.col(name) == pl.col(f"{name}_last") for name in _IDENTITY)
        & (pl.col("version") != "")
        & pl.col("file_id").str.ends_with(VERSION)
    )
    return listed.with_columns(is_known=is_known.fill_null(value=False))


def _present(listed: pl.DataFrame, contents: pl.DataFrame) -> pl.DataFrame:
    """Return the ledger of the present files; one that is unreadable now keeps its content."""
    files = listed.join(contents, on="source_file", how="left", maintain_order="left")
    is_read = pl.col("new_rows").is_not_null()
    keeps_version = pl.col("is_known") | pl.col("is_stable")
    return files.select(
        "source_file",
        pl.when(is_read | pl.col("is_known"))
        .then(pl.lit("read"))
        .otherwise(pl.lit("unreadable"))
        .alias("status"),
        *("size", "mtime_ns"),
        pl.when(is_read).then("new_id").otherwise("file_id").alias("file_id"),
        pl.coalesce("new_rows", "rows").alias("rows"),
        pl.coalesce("new_reasons", "reasons").alias("reasons"),
        pl.coalesce("new_message", "message").alias("message"),
        pl.when(keeps_version).then("version").otherwise(pl.lit("")).alias("version"),
        "path_keys",
    )


def _content_frame(contents: Mapping[str, FileContent], losing: AbstractSet[str]) -> pl.DataFrame:
    """Return what was read of files, by path; files without rows cannot be read."""
    rows: list[tuple[str, str | None, int | None, Sequence[str], str]] = []
    for path, (file_id, content) in contents.items():
        if isinstance(content, Unreadable):
            rows.append((path, None, None, content.reasons, content.message))
        elif path in losing:
            message = f"{_CUT}, and lacks traces that it had before; these stay published"
            rows.append((path, None, None, [CUT_FILE], message))
        elif file_id and is_cut(file_id):
            rows.append((path, file_id, content, [CUT_FILE], _CUT))
        else:
            rows.append((path, file_id, content, [], ""))
    return pl.DataFrame(rows, schema=_READ, orient="row")


def _losing(
    run: Run, contents: Mapping[str, FileContent], before: pl.DataFrame, staged: Sequence[Path]
) -> set[str]:
    """Return the paths of cut files that lack traces of their last content, which then counts."""
    cut = [
        (path, file_id)
        for path, (file_id, rows) in contents.items()
        if isinstance(rows, int) and file_id and is_cut(file_id)
    ]
    if not cut or run.config.prune:
        return set()
    files = pl.DataFrame(cut, schema={"source_file": pl.String, "file_id": pl.String}, orient="row")
    last = before.select("source_file", last_id="file_id")
    pairs = files.join(last, on="source_file").filter(
        content_of("file_id") != content_of("last_id")
    )
    facts = pl.concat(
        [run.snapshot.scan("facts"), *(pl.scan_parquet(path, glob=False) for path in staged)]
    )
    ids = pl.concat([pairs.get_column("file_id"), pairs.get_column("last_id")]).implode()
    accepted = facts.filter(pl.col("file_id").is_in(ids), pl.col("reasons").list.len() == 0)
    traces = accepted.select("file_id", *_TRACE)
    had = pairs.lazy().join(traces, left_on="last_id", right_on="file_id")
    has = pairs.lazy().join(traces, on="file_id")
    lost = had.join(has, on=["source_file", *_TRACE], how="anti")
    return {*lost.collect().get_column("source_file")}


def _sources(run: Run, before: pl.DataFrame, excluded: Excluded) -> list[SourceFile]:
    """Return the archive's files, without other warehouses, or as faults if files are known there.

    Excluded files are noted, and so are known ones that no longer exist.
    """
    warehouses: list[str] = []
    sources = discover(
        *(run.config.archive, run.config.warehouse, warehouses.append, excluded.takes),
        was_read=lambda name: in_full(name) in last_archive(run.snapshot),
    )
    for path in before.get_column("source_file"):
        excluded.takes(path)
    for glob in excluded.unused:
        warn(
            f"--exclude {quote(printable(glob))} matches no file: a glob matches whole paths below "
            "the archive, or begins with **/ for any depth; fix it, or remove it",
            recurring=True,
        )
    for path in warehouses:
        if not in_unreadable_folders(before.clear(), before, {path}).is_empty():
            sources.append(SourceFile(path, 0, 0, fault=IS_WAREHOUSE))
        else:
            warn(f"{printable(path)} is skipped: it is a warehouse of kp_batch", recurring=True)
    return sources


def _warn_of_unreadable(run: Run, now: pl.DataFrame, before: pl.DataFrame) -> None:
    """Name the first files and folders that cannot be read, new faults before known ones."""
    faulty = now.filter(pl.col("reasons").list.len() > 0)
    if faulty.is_empty():
        return
    last = before.select("source_file", "message", pl.lit(value=True).alias("is_repeated"))
    marked = faulty.join(last, on=["source_file", "message"], how="left", maintain_order="left")
    marked = marked.with_columns(pl.col("is_repeated").fill_null(value=False))
    marked = marked.sort("is_repeated", maintain_order=True)
    columns = ("source_file", "reasons", "message", "is_repeated")
    for path, reasons, message, is_repeated in marked.head(_NAMED).select(columns).iter_rows():
        how = "is cut: " if reasons == [CUT_FILE] else "is unreadable: "
        warn(f"{printable(path)} {how}{printable(message)}", repeated=is_repeated)
    if (more := len(marked) - _NAMED) > 0:
        others = f"{count_of(more, 'more file')} {be(more)} unreadable"
        message = f"{others}; {run.where_rejects_are}"
        warn(message, repeated=marked.get_column("is_repeated")[_NAMED])


def _warn_of_loss(now: pl.DataFrame, before: pl.DataFrame, gone: Sequence[str]) -> None:
    known = before.filter(pl.col("status") != "gone")
    rows, known_rows, known_read = (
        int(files.get_column("rows").sum())
        for files in (now.filter(status="read"), known, known.filter(status="read"))
    )

    def is_half(of: int, rows_before: int) -> bool:
        return rows_before > 0 and 2 * of <= rows_before

    if not is_half(rows, known_rows):
        return
    unreadable = now.filter(status="unreadable").join(known, on="source_file", how="semi")
    paths = unreadable.get_column("source_file")
    causes = (
        f"; {count_of(len(names), 'file')} {be(len(names))} {cause} (such as {printable(names[0])})"
        for cause, names in (("gone", gone), ("unreadable", paths))
        if len(names)
    )
    warn(
        f"the archive has lost at least half of its rows: it has {rows:,} now, and had "
        f"{known_rows:,}{''.join(causes)}; restore what is missing, or remove its traces with "
        "--prune",
        repeated=not is_half(rows, known_read),
    )


def read_new(
    run: Run, sources: Sequence[SourceFile], executor: Executor
) -> tuple[dict[str, FileContent], list[StagedPart]]:
    """Read new files; return their content, by path, and the staged parts."""
    if not sources:
        return {}, []
    contents: dict[str, FileContent] = {}
    staged: list[StagedPart] = []
    rows: dict[str, int | Unreadable] = dict(_rows_by_content(run).iter_rows())
    copied = (_with_copy(source, run.staging) for source in sources)
    for batch in cut(
        copied, lambda source: source.size if source.copy else 0, DOWNLOAD_BATCH_BYTES
    ):
        for path in run.staging.fetched.iterdir():
            path.unlink()
        staged += _read_batch(run, batch, executor, contents, rows)
    return contents, staged


def _with_copy(source: SourceFile, staging: Staging) -> SourceFile:
    """Return the file; if it is in a bucket, with the path of its copy in the run's staging."""
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
    """Read some files: add their content, by path, and the rows of each content."""
    parts = file_parts(sources)
    ids = [*chain.from_iterable(_shown("identifying", parts, executor.map(identify, parts)))]
    unknown: dict[str, list[SourceFile]] = {}
    for source, file_id in zip(sources, ids, strict=True):
        if isinstance(file_id, str) and not isinstance(rows.get(file_id), int):
            unknown.setdefault(file_id, []).append(source)
    contents = [NewContent(file_id, tuple(files)) for file_id, files in unknown.items()]
    staged = _staged(run, contents, executor)
    counts = chain.from_iterable(part.rows for part in staged)
    rows |= {content.file_id: count for content, count in zip(contents, counts, strict=True)}
    contents_by_path |= {
        source.path: (file_id, rows[file_id]) if isinstance(file_id, str) else (None, file_id)
        for source, file_id in zip(sources, ids, strict=True)
    }
    return staged


def _staged(run: Run, contents: Sequence[NewContent], executor: Executor) -> list[StagedPart]:
    forgotten = run.snapshot.files("forgotten")
    archive = [in_full(name) for name in run.config.archive]
    parts = _cut(contents, lambda content: _size(content.sources[0]))
    shared = (archive, forgotten, run.staging, run.config.reject_text)
    staged = executor.map(stage_contents, parts, *shared)
    return _shown("reading", parts, staged)


def _shown(verb: str, parts: Sequence[Sequence[object]], results: Generator[R]) -> list[R]:
    """Collect the results of parts, and show how many files are done."""
    done: list[R] = []
    files = sum(map(len, parts))
    with progress(verb, files, "file", at_once=len(parts) > 1) as bar, closing(results):
        for part, result in zip(parts, results, strict=True):
            done.append(result)
            bar.add(len(part))
    return done


def file_parts(sources: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
    """Cut files into parts to read."""
    return _cut(sources, _size)


def _cut(items: Sequence[T], size: Callable[[T], int]) -> list[tuple[T, ...]]:
    share = sum(map(size, items)) // _PARTS
    return list(cut(items, size, min(max(share, _LEAST_BYTES), MAX_PART_BYTES)))


def _size(source: SourceFile) -> int:
    return max(source.size, _FILE_BYTES)


def _rows_by_content(run: Run) -> pl.DataFrame:
    """Return the number of rows of each content that was read before, by file_id."""
    facts = run.snapshot.scan("facts")
    if run.forgets:
        facts = facts.join(
            pl.scan_parquet(run.staging.to_forget, glob=False), on="trace_id", how="anti"
        )
    counts = facts.group_by("file_id").agg(rows=pl.len().cast(pl.Int64))
    return counts.collect(engine="streaming")
