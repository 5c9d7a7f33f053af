"""Reads the files whose content is not known yet, a part at a time."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import polars as pl

from kp_batch.archive.folders import SourceFile
from kp_batch.archive.sources import absolute
from kp_batch.ingest.contents import Content, StagedPart, identify, stage_contents
from kp_batch.ingest.each_file import Unreadable
from kp_batch.progress import progress
from kp_batch.run import Run
from kp_batch.staging import Staging
from kp_batch.steps.step import Executor, cut
from kp_batch.storage.urls import is_url, local_name

T = TypeVar("T")

# A part of the files: so many bytes, each file counting as this many at the least.
_PART_BYTES, _FILE_BYTES = 64 << 20, 64 << 10
# Fewer where there are not so many parts, since each core carries out one; and yet this many, since
# each part leaves a file of facts in the warehouse.
_PARTS, _LEAST_BYTES = 16, 1 << 20
# Objects of a bucket are fetched once, to be identified and to be read: so many bytes at a time.
_COPIED_BYTES = 4 << 30


@dataclass(frozen=True)
class Found:
    """What a file holds: its content, if it could be read, and the rows or why it has none."""

    file_id: str | None
    rows: int | Unreadable


def read_new(
    run: Run, sources: Sequence[SourceFile], executor: Executor
) -> tuple[dict[str, Found], list[StagedPart]]:
    """Read what is not known yet: what each file holds, by its path, and what was staged of it."""
    if not sources:
        return {}, []
    found: dict[str, Found] = {}
    staged: list[StagedPart] = []
    rows: dict[str, int | Unreadable] = {**rows_by_content(run)}
    copied = (_with_copy(source, run.staging) for source in sources)
    for some in cut(copied, lambda each: each.size if each.copy else 0, _COPIED_BYTES):
        for path in run.staging.fetched.iterdir():
            path.unlink()
        staged += _read_some(run, some, executor, found, rows)
    return found, staged


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
    found: dict[str, Found],
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
    found |= {
        source.path: Found(file_id, rows[file_id])
        if isinstance(file_id, str)
        else Found(None, file_id)
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


def rows_by_content(run: Run) -> dict[str, int]:
    """How many rows each content has that was read before, by its file_id."""
    facts = run.snapshot.scan("facts")
    if run.forgets:
        facts = facts.join(
            pl.scan_parquet(run.staging.to_forget, glob=False), on="trace_id", how="anti"
        )
    return dict(facts.group_by("file_id").len().collect(engine="streaming").iter_rows())
