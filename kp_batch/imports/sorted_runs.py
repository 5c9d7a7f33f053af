"""Sorts any number of rows by a key, within bounded memory: an external merge sort.

Rows are gathered and written as runs: sorted Parquet files. A merge reads one row group of each run
after another, so that it has as many pieces in memory as there are runs.

Rows are cut and put together as Arrow tables, whose texts stay where they are. Polars keeps each
value of a frame of one row twice, and a row may have a text of `bounds.LINE_BYTES`.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.duck import escaped
from kp_batch.schemas import arrow_schema

Pieces = Iterator[pl.DataFrame]  # of rows in order
RUN_BYTES = 16 << 20  # of rows that are gathered for a run
_PIECE_BYTES = 4 << 20  # of merged rows
_GROUP_ROWS = 10_000
_GROUP_BYTES = 1 << 19
_AT_ONCE = 32  # runs that are merged at once


class RowGroupWriter:
    """Writes a Parquet file whose row groups depend on the rows alone.

    Args:
        path: of the file.
        schema: of the rows.
        size: how many bytes a row takes, about.
        rows: of a group, at the most.
        most: bytes of a group, unless one row has more.
        metadata: of the file.
        unlike: columns whose values are long and all different: they get neither a dictionary nor
            bounds, for each of which they would be copied.
    """

    def __init__(  # noqa: PLR0913 (each says how the file is to be)
        self,
        path: Path,
        schema: pl.Schema,
        size: pl.Expr,
        *,
        rows: int = _GROUP_ROWS,
        most: int = _GROUP_BYTES,
        metadata: Mapping[str, str] | None = None,
        unlike: Collection[str] = (),
    ) -> None:
        self._schema = arrow_schema(schema).with_metadata(dict(metadata or {}))
        self._size, self._rows, self._most = size, rows, most
        self._pending, self._sizes = _table_of(pl.DataFrame(schema=schema)), list[int]()
        others = [name for name in schema if name not in unlike] if unlike else True
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            use_dictionary=others,
            write_statistics=others,
        )
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._pending.num_rows:
                self._write(self._pending)
        finally:
            self._writer.close()

    def write(self, frame: pl.DataFrame) -> None:
        """Write rows, which come after those before."""
        table = _table_of(frame.select(self._pending.column_names))
        self._pending = pa.concat_tables([self._pending, table])
        self._sizes += frame.select(self._size).to_series().to_list()
        self.rows += len(frame)
        begin = total = 0
        for place, size in enumerate(self._sizes):
            if place > begin and (place - begin == self._rows or total + size > self._most):
                self._write(self._pending.slice(begin, place - begin))
                begin, total = place, 0
            total += size
        self._pending, self._sizes = self._pending.slice(begin), self._sizes[begin:]

    def _write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows.combine_chunks().cast(self._schema))


def _table_of(frame: pl.DataFrame) -> pa.Table:
    """The rows of a frame, without a copy of its texts."""
    return frame.to_arrow(compat_level=pl.CompatLevel.newest())


def _frame_of(tables: Iterable[pa.Table]) -> pl.DataFrame:
    """The rows of tables as one frame, likewise; a column that a table lacks is null there."""
    table = pa.concat_tables(tables, promote_options="default")
    return cast("pl.DataFrame", pl.from_arrow(table.combine_chunks()))


def stacked(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The rows of frames as one frame, likewise."""
    return _frame_of(map(_table_of, frames))


class SortedRuns:
    """Gathers rows, and writes them as sorted runs.

    Args:
        folder: for the runs; made where it is missing.
        schema: of the rows.
        by: columns that rows are sorted by; the first is the key, see `merged`.
        size: how many bytes a row takes, about.
        unlike: see `RowGroupWriter`.
    """

    def __init__(
        self,
        folder: Path,
        schema: pl.Schema,
        by: Sequence[str],
        size: pl.Expr,
        *,
        unlike: Collection[str] = (),
    ) -> None:
        self._folder, self._schema, self._by, self._size = folder, schema, by, size
        self._unlike = unlike
        self._rows, self._frames = list[tuple[object, ...]](), list[pl.DataFrame]()
        self._bytes = self._written = 0
        self._runs: list[Path] = []
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, row: tuple[object, ...], size: int) -> None:
        """Take a row of so many bytes."""
        self._rows.append(row)
        self._count(size + _GROUP_BYTES // _GROUP_ROWS)

    def extend(self, rows: pl.DataFrame) -> None:
        """Take rows."""
        self._frames.append(rows)
        self._count(int(rows.estimated_size()))

    def adopt(self, runs: Sequence[Path]) -> None:
        """Take runs of the same kind, and delete them when they are not needed any more."""
        self._runs += runs
        self._merge()

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > RUN_BYTES:
            self._flush()

    def runs(self) -> list[Path]:
        """The runs of all rows: at least one, and not too many to be merged."""
        if self._bytes or not self._runs:
            self._flush()
        return [*self._runs]

    def names(self) -> list[str]:
        """The runs as DuckDB takes them."""
        return [escaped(run) for run in self.runs()]

    def _flush(self) -> None:
        rows = pl.DataFrame(self._rows, schema=self._schema, orient="row")
        frame = pl.concat([*self._frames, rows]) if self._frames else rows
        self._rows, self._frames = list[tuple[object, ...]](), list[pl.DataFrame]()
        self._bytes = 0
        self._write([frame.sort(self._by, nulls_last=True)])
        self._merge()

    def _merge(self) -> None:
        """Merge runs, the oldest first, until they are few enough to be merged at once."""
        while len(self._runs) >= 2 * _AT_ONCE:
            oldest, self._runs = self._runs[:_AT_ONCE], self._runs[_AT_ONCE:]
            self._write(merged(map(pieces, oldest), self._by))
            for run in oldest:
                run.unlink()

    def _write(self, frames: Iterable[pl.DataFrame]) -> None:
        path = self._folder / f"{self._written:06d}.parquet"
        with RowGroupWriter(path, self._schema, self._size, unlike=self._unlike) as writer:
            for frame in frames:
                writer.write(frame)
        self._written += 1
        self._runs.append(path)


def pieces(path: Path, span: tuple[str, str] | None = None) -> Pieces:
    """The rows of a run, a row group at a time.

    Args:
        path: of the run, whose first column is its key.
        span: the least and the greatest key to read; None for all.
    """
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            if span:
                keys = file.metadata.row_group(number).column(0).statistics
                if keys and keys.has_min_max and (keys.max < span[0] or keys.min > span[1]):
                    continue
            yield cast("pl.DataFrame", pl.from_arrow(file.read_row_group(number)))


def merged(streams: Iterable[Pieces], by: Sequence[str]) -> Pieces:
    """Merge streams of rows, each in the order of `by`.

    Args:
        streams: of the same columns.
        by: columns, nulls last; rows that agree in the first, the key, come in one piece.
    """
    open_ = [stream for source in streams if (stream := _Stream(source, by[0])).fill()]
    ready, size = list[pa.Table](), 0
    while open_:
        bound = min((stream.last for stream in open_ if not stream.is_done), default=None)
        taken = [part for stream in open_ if (part := stream.take_below(bound)).num_rows]
        if not taken:
            for stream in open_:
                if stream.last == bound:
                    stream.extend()
        ready += taken
        size += sum(stream.taken_bytes for stream in open_)
        if ready and size > _PIECE_BYTES:
            rows, ready, size = _frame_of(ready), list[pa.Table](), 0
            yield rows.sort(by, nulls_last=True)
        open_ = [stream for stream in open_ if stream.fill()]
    if ready:
        yield _frame_of(ready).sort(by, nulls_last=True)


class _Stream:
    """A stream, with its rows in memory that are not merged yet."""

    def __init__(self, source: Pieces, key: str) -> None:
        self._source, self._key = source, key
        self._rows, self._keys, self._begin = pa.table({}), list[str](), 0
        self._row_bytes = 0.0  # of a row of the last piece, on average
        self.is_done = False  # whether no rows come after those in memory
        self.taken_bytes = 0  # of the rows that were taken last, about

    @property
    def last(self) -> str:
        return self._keys[-1]

    def fill(self) -> bool:
        """Have rows in memory, if any remain; returns whether there are any."""
        while self._begin == len(self._keys):
            if self.is_done:
                return False
            self.extend()
        return True

    def extend(self) -> None:
        """Read the next piece."""
        piece = next(self._source, None)
        if piece is None:
            self.is_done = True
            return
        table, rest = _table_of(piece), self._rows.slice(self._begin)
        self._rows = pa.concat_tables([rest, table]) if rest.num_rows else table
        self._keys, self._begin = self._rows[self._key].to_pylist(), 0
        self._row_bytes = piece.estimated_size() / max(len(piece), 1)

    def take_below(self, bound: str | None) -> pa.Table:
        """Take the rows whose key is below the bound; all, if there is none."""
        end = len(self._keys) if bound is None else bisect_left(self._keys, bound, self._begin)
        begin, self._begin = self._begin, end
        self.taken_bytes = int(self._row_bytes * (end - begin))
        return self._rows.slice(begin, end - begin)
