"""Cuts the days that are written anew into parts of bounded size."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import accumulate, groupby
from pathlib import Path

import polars as pl

from kp_batch.planning.sizes import rows_in_part
from kp_batch.runs.run import Run
from kp_batch.steps.step import cut

_WHOLE = 1 << 30  # a full part; days differ in how many of their rows are one

Rows = tuple[int, int]  # from the first to the last one, which is excluded


@dataclass(frozen=True)
class DayPart:
    """Some days to be written anew, or some rows of a large one."""

    name: str  # of its files; the names of a day's parts sort as their rows do
    on_timeline: bool  # whether its rows stand on the timeline, or are as published
    paths: tuple[Path, ...]  # that hold them, with others perhaps
    ranges: tuple[Rows, ...]  # of these files' rows, one file after the other, ascending

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(last - first for first, last in self.ranges)


@dataclass(frozen=True)
class _Day:
    """The rows of one day, or some of them."""

    paths: tuple[Path, ...]
    first: int
    last: int
    on_timeline: bool
    most: int  # of such rows that are a part


def day_parts(
    run: Run,
    days: Iterable[date],
    published: Mapping[date, Sequence[Path]],
    counts: Mapping[date, int],
    on_timeline: frozenset[date],
) -> tuple[DayPart, ...]:
    """Cut days into parts.

    Args:
        run: the run.
        days: to be written anew, ascending.
        published: the files of each published day, in the order of their rows.
        counts: how many rows each of these has.
        on_timeline: the days whose rows stand on the timeline; one may have lost them all.
    """
    ranges = _ranges(run)
    timeline = (run.staging.timeline,)
    most = rows_in_part(timeline if ranges else ())
    found = (
        _Day(timeline, *ranges.get(day, (0, 0)), on_timeline=True, most=most)
        if day in on_timeline or day in ranges
        else _published_day(tuple(published[day]), counts[day])
        for day in days
    )
    parts: list[DayPart] = []
    pieces = (piece for day in found for piece in _pieces(day))
    for _, group in groupby(pieces, lambda piece: piece.on_timeline):
        for part in cut(_with_gaps(group), _share, _WHOLE):
            parts.append(_part(f"{len(parts):06d}", [piece for piece, _ in part]))
    return tuple(parts)


def _published_day(paths: tuple[Path, ...], rows: int) -> _Day:
    return _Day(paths, 0, rows, on_timeline=False, most=rows_in_part(paths))


def _share(piece: tuple[_Day, int]) -> int:
    """How much of a part a piece takes, of `_WHOLE`, with the rows before it."""
    day, rows = piece
    return rows * _WHOLE // day.most


def _with_gaps(pieces: Iterable[_Day]) -> Iterator[tuple[_Day, int]]:
    """Each piece with the rows from the end of the one before: those are read and passed over."""
    end: int | None = None
    for piece in pieces:
        begin = piece.first if end is None or not piece.on_timeline else end
        yield piece, piece.last - begin
        end = piece.last


def _ranges(run: Run) -> dict[date, Rows]:
    """Which rows of the timeline each day has."""
    timeline = pl.scan_parquet(run.staging.timeline, glob=False)
    days = timeline.select(day=pl.col("created_at").dt.date()).with_row_index()
    bounds = days.group_by("day").agg(first=pl.col("index").min(), rows=pl.len())
    found = bounds.collect(engine="streaming")
    return {day: (first, first + rows) for day, first, rows in found.iter_rows()}


def _pieces(day: _Day) -> Iterator[_Day]:
    """Split a day that is too large for one part; the last piece takes the rest."""
    for first in range(day.first, day.last, day.most):
        yield replace(day, first=first, last=min(first + day.most, day.last))


def _part(name: str, pieces: Sequence[_Day]) -> DayPart:
    if pieces[0].on_timeline:
        paths, ranges = pieces[0].paths, [(piece.first, piece.last) for piece in pieces]
    else:
        paths = tuple(path for piece in pieces for path in piece.paths)
        # Whatever comes before a piece is the end of its day.
        bases = accumulate((piece.last for piece in pieces), initial=0)
        ranges = [
            (base + piece.first, base + piece.last)
            for base, piece in zip(bases, pieces, strict=False)
        ]
    return DayPart(name, pieces[0].on_timeline, paths, tuple(_joined(ranges)))


def _joined(ranges: Iterable[Rows]) -> Iterator[Rows]:
    """Join ranges that touch."""
    held: Rows | None = None
    for first, last in ranges:
        if held and first != held[1]:
            yield held
            held = None
        held = (held[0] if held else first, last)
    if held:
        yield held
