"""The files of an imported archive: one a day, in UTC, with traces in the order of their time.

They are merged row group by row group and not sorted in DuckDB, which holds 2,048 rows at once:
of traces of a megabyte that is more memory than there may be.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from kp_batch.conversion.apply_rules import IMPORTED, Row
from kp_batch.imports.destination import Archive
from kp_batch.imports.sorted_runs import Pieces, RowGroupWriter, SortedRuns, merged, pieces
from kp_batch.text import encodable

_TRACES = pl.Schema({"key": pl.String, **IMPORTED})  # by their time, then their id
_LEAVING = pl.Schema(dict.fromkeys(("day", "id", "goes_to"), pl.String()))
_LENGTHS = [
    pl.element().struct.field(name).str.len_bytes().fill_null(0)
    for name in ("content", "input", "output_summary")
]
_SIZE = pl.col("steps").list.eval(pl.sum_horizontal(_LENGTHS)).list.sum() + 1_000
_ROWS, _BYTES = 1_000, 16 << 20  # of a row group
_DAY = len("2026-01-31")
_AFTER = "~"  # sorts after all that follows the day in a key


def day_of(trace: Row) -> str:
    """The day of a trace."""
    return trace["metadata"]["created_at"][:_DAY]


def rows_of(traces: Sequence[Row]) -> pl.DataFrame:
    """A frame of traces; letters that UTF-8 does not have are replaced."""
    try:
        return _frame(traces)
    except UnicodeEncodeError:
        texts = (json.dumps(trace, ensure_ascii=False) for trace in traces)
        return _frame([json.loads(encodable(text)) for text in texts])


def _frame(traces: Iterable[Row]) -> pl.DataFrame:
    rows = [
        (f"{trace['metadata']['created_at']} {trace['id']}", *(trace[name] for name in IMPORTED))
        for trace in traces
    ]
    return pl.DataFrame(rows, schema=_TRACES, orient="row")


class DailyPartitions:
    """The changes of an import to the days of an archive, with a folder for its files."""

    def __init__(self, folder: Path) -> None:
        self._traces = SortedRuns(folder / "traces", _TRACES, ["key"], _SIZE)
        self._leaving = SortedRuns(folder / "leaving", _LEAVING, ["day", "id"], pl.lit(100))
        self._changed, self._left = set[str](), set[str]()  # days, see `upsert`

    def add(self, rows: pl.DataFrame) -> None:
        """Put traces into their days; see `rows_of`."""
        self._traces.extend(rows)

    def move(self, id_: str, day: str | None, old_days: Iterable[str]) -> None:
        """Take a trace out of its old days.

        Args:
            id_: of the trace.
            day: into which it is put; None if there is no such trace.
            old_days: in which it may be.
        """
        for old_day in {*old_days, *filter(None, [day])}:
            self._leaving.add((old_day, id_, day), 100)
            (self._left if day and old_day != day else self._changed).add(old_day)

    def upsert(self, archive: Archive, metadata: Mapping[str, str]) -> int:
        """Write the days, each completely or not at all; returns how many have changed.

        A trace that moves is taken out of its old day last, so that it is in one at any moment.
        Each file that is written has the metadata.
        """
        moves = (pl.col("goes_to") != pl.col("day")).fill_null(value=False)
        changed = self._write(archive, self._changed, ~moves, metadata)
        changed |= self._write(archive, self._left, pl.lit(value=True), metadata)
        return len(changed)

    def _write(
        self, archive: Archive, days: set[str], leaves: pl.Expr, metadata: Mapping[str, str]
    ) -> set[str]:
        """Write and store days, without the traces that leave; returns those that have changed."""
        names = {day: f"{day}.parquet" for day in sorted(days)}
        archive.fetch(names.values())
        changed: set[str] = set()
        for day, name in names.items():
            rows = merged(
                [self._old(archive.local_path(name), day, leaves), *self._new(day)], ["key"]
            )
            if archive.put(name, partial(_write_day, rows, metadata)):
                changed.add(day)
        archive.store([names[day] for day in sorted(changed)])
        return changed

    def _new(self, day: str) -> Iterator[Pieces]:
        """The new traces of a day."""
        is_of_day = pl.col("key").str.starts_with(day)
        for run in self._traces.runs():
            yield (piece.filter(is_of_day) for piece in pieces(run, (day, day + _AFTER)))

    def _old(self, path: Path, day: str, leaves: pl.Expr) -> Pieces:
        """The traces of a day's file that stay there."""
        if not path.exists():
            return
        leaving = [
            piece.filter(pl.col("day") == day, leaves).select("id")
            for run in self._leaving.runs()
            for piece in pieces(run, (day, day))
        ]
        ids = pl.concat([pl.DataFrame(schema={"id": pl.String}), *leaving])
        key = pl.concat_str(pl.col("metadata").struct.field("created_at"), "id", separator=" ")
        for piece in pieces(path):
            yield piece.join(ids, on="id", how="anti", maintain_order="left").select(
                key.alias("key"), *IMPORTED.names()
            )


def _write_day(rows: Pieces, metadata: Mapping[str, str], path: Path) -> int:
    """Write the rows of a day; returns how many."""
    with RowGroupWriter(
        path, IMPORTED, _SIZE, rows=_ROWS, most=_BYTES, metadata=metadata
    ) as writer:
        for piece in rows:
            writer.write(piece)
    return writer.rows
