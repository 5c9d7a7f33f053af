"""Cut the days to write into parts of bounded size.

A part has a fixed number of rows, or fewer if the rows are large.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import accumulate, groupby
from pathlib import Path

import polars as pl

from kp_batch.runs.run import Run
from kp_batch.steps.step import cut

PART_ROWS = 65_536
# Bytes of a part, uncompressed: rows of tiny traces take less, ids of 10,000 letters far more.
PART_BYTES = 64 << 20
_FULL = 1 << 30  # the size of a full part; how many rows fill one depends on the day

Rows = tuple[int, int]  # first and last row; the last is excluded


def rows_in_part(paths: Iterable[str | Path]) -> int:
    """Return how many rows of some Parquet files make a part, by their mean size; at least one."""
    import pyarrow.parquet as pq

    groups = [
        metadata.row_group(number)
        for metadata in map(pq.read_metadata, paths)
        for number in range(metadata.num_row_groups)
    ]
    size = sum(group.total_byte_size for group in groups)
    rows = sum(group.num_rows for group in groups)
    return max(min(PART_ROWS, PART_BYTES * rows // max(size, 1)), 1)


@dataclass(frozen=True)
class WriteTask:
    """Some days to write, or some rows of a large day."""

    name: str  # the name of its files; names of a day's parts sort like their rows
    on_timeline: bool  # whether its rows are on the timeline, rather than as published
    paths: tuple[str | Path, ...]  # the files with its rows, perhaps among others
    ranges: tuple[Rows, ...]  # its rows, counted through these files, ascending

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(last - first for first, last in self.ranges)


@dataclass(frozen=True)
class _Day:
    """The rows of one day, or some of them."""

    paths: tuple[str | Path, ...]
    first: int
    last: int
    on_timeline: bool
    most: int  # rows in a part


def cut_into_tasks(
    run: Run,
    days: Iterable[date],
    published: Mapping[date, Sequence[str]],
    counts: Mapping[date, int],
    on_timeline: frozenset[date],
) -> tuple[WriteTask, ...]:
    """Cut days into parts.

    Args:
        run: the run.
        days: the days to write, ascending.
        published: the files of each published day, in the order of their rows.
        counts: the number of rows in each of these files.
        on_timeline: the days whose rows are on the timeline; a day may have lost all of them.
    """
    ranges = _ranges(run)
    timeline = (run.staging.timeline,)
    most = rows_in_part(timeline if ranges else ())
    pieces_by_day = (
        _Day(timeline, *ranges.get(day, (0, 0)), on_timeline=True, most=most)
        if day in on_timeline or day in ranges
        else _Day(
            tuple(published[day]),
            *(0, counts[day]),
            on_timeline=False,
            most=rows_in_part(published[day]),
        )
        for day in days
    )
    parts: list[WriteTask] = []
    pieces = (piece for day in pieces_by_day for piece in _pieces(day))
    for _, group in groupby(pieces, lambda piece: piece.on_timeline):
        for part in cut(_with_gaps(group), _share, _FULL):
            parts.append(_part(f"{len(parts):06d}", [piece for piece, _ in part]))
    return tuple(parts)


def _share(piece: tuple[_Day, int]) -> int:
    """Return the share of a part, of `_FULL`, that a piece takes with the rows before it."""
    day, rows = piece
    return rows * _FULL // day.most


def _with_gaps(pieces: Iterable[_Day]) -> Iterator[tuple[_Day, int]]:
    """Yield each piece with its rows, and those since the previous one, which are read, too."""
    end: int | None = None
    for piece in pieces:
        begin = piece.first if end is None or not piece.on_timeline else end
        yield piece, piece.last - begin
        end = piece.last


def _ranges(run: Run) -> dict[date, Rows]:
    """Return which rows of the timeline each day has."""
    timeline = pl.scan_parquet(run.staging.timeline, glob=False)
    days = timeline.select(day=pl.col("created_at").dt.date()).with_row_index()
    bounds = days.group_by("day").agg(first=pl.col("index").min(), rows=pl.len())
    ranges = bounds.collect(engine="streaming")
    return {day: (first, first + rows) for day, first, rows in ranges.iter_rows()}


def _pieces(day: _Day) -> Iterator[_Day]:
    """Split a day that is too large for one part; the last piece takes the rest."""
    for first in range(day.first, day.last, day.most):
        yield replace(day, first=first, last=min(first + day.most, day.last))


def _part(name: str, pieces: Sequence[_Day]) -> WriteTask:
    if pieces[0].on_timeline:
        paths, ranges = pieces[0].paths, [(piece.first, piece.last) for piece in pieces]
    else:
        paths = tuple(path for piece in pieces for path in piece.paths)
        # All rows before a piece belong to days that end there.
        bases = accumulate((piece.last for piece in pieces), initial=0)
        ranges = [
            (base + piece.first, base + piece.last)
            for base, piece in zip(bases, pieces, strict=False)
        ]
    return WriteTask(name, pieces[0].on_timeline, paths, tuple(_joined(ranges)))


def _joined(ranges: Iterable[Rows]) -> Iterator[Rows]:
    """Join adjacent ranges."""
    open_range: Rows | None = None
    for first, last in ranges:
        if open_range and first != open_range[1]:
            yield open_range
            open_range = None
        open_range = (open_range[0] if open_range else first, last)
    if open_range:
        yield open_range
