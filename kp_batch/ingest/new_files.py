"""Reads the files whose content is not known yet, a part at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from kp_batch.archive.source_file import SourceFile
from kp_batch.executor import Executor, Step, cut
from kp_batch.ingest.contents import Content, StagedPart, identify, stage_contents
from kp_batch.ingest.each_file import Unreadable
from kp_batch.progress import progress
from kp_batch.run import Run
from kp_batch.warehouse.relations import scan
from kp_batch.warehouse.versions import files_of

IDENTIFY = Step("identify", identify)
STAGE = Step("stage", stage_contents)
T = TypeVar("T")

# A part of the files: so many bytes, each file counting as this many at the least.
_PART_BYTES, _FILE_BYTES = 64 << 20, 64 << 10
# Fewer where there are not so many parts, since each core carries out one; and yet this many, since
# each part leaves a file of facts in the warehouse.
_PARTS, _LEAST_BYTES = 16, 1 << 20


@dataclass(frozen=True)
class Found:
    """What a file holds: its content, if it could be read, and the rows or why it has none."""

    file_id: str | None
    rows: int | Unreadable


def read_new(
    run: Run, sources: Sequence[SourceFile], workers: Executor
) -> tuple[dict[str, "Found"], list[StagedPart]]:
    """Read what is not known yet: what each file holds, by its path, and what was staged of it."""
    if not sources:
        return {}, []
    ids = _identified(sources, workers)
    rows: dict[str, int | Unreadable] = {**rows_by_content(run)}
    unknown: dict[str, list[SourceFile]] = {}
    for source, file_id in zip(sources, ids, strict=True):
        if isinstance(file_id, str) and file_id not in rows:
            unknown.setdefault(file_id, []).append(source)
    contents = [Content(file_id, tuple(files)) for file_id, files in unknown.items()]
    staged = _staged(run, contents, workers)
    for part, made in staged:
        rows |= {each.file_id: count for each, count in zip(part, made.rows, strict=True)}
    found = {
        source.path: Found(file_id, rows[file_id])
        if isinstance(file_id, str)
        else Found(None, file_id)
        for source, file_id in zip(sources, ids, strict=True)
    }
    return found, [made for _, made in staged]


def _identified(sources: Sequence[SourceFile], workers: Executor) -> list[str | Unreadable]:
    parts = file_parts(sources)
    ids: list[str | Unreadable] = []
    with progress("identifying", len(sources), "file", at_once=len(parts) > 1) as shown:
        for part in workers.map(IDENTIFY, parts):
            ids += part
            shown.add(len(part))
    return ids


def _staged(
    run: Run, contents: Sequence[Content], workers: Executor
) -> list[tuple[tuple[Content, ...], StagedPart]]:
    forgotten = files_of(run.config.warehouse, "forgotten", run.tables.get("forgotten"))
    parts = _cut(contents, lambda each: _size(each.sources[0]))
    staged: list[StagedPart] = []
    with progress("reading", len(contents), "file", at_once=len(parts) > 1) as shown:
        for part in workers.map(STAGE, parts, forgotten, run.staging):
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
    facts = scan(run.config.warehouse, "facts", run.tables.get("facts"))
    if run.forgets:
        facts = facts.join(pl.scan_parquet(run.staging.to_forget), on="trace_id", how="anti")
    return dict(facts.group_by("file_id").len().collect(engine="streaming").iter_rows())
