"""The files of an imported archive: one per day, in UTC, with traces in the order of their time.

They are merged piece by piece. Sorting in DuckDB holds 2,048 rows at once, which may be too much
memory if each trace has a megabyte.
"""

import heapq
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.conversion.apply_rules import IMPORTED, Row
from kp_batch.imports.destination import Archive
from kp_batch.schemas import arrow_schema
from kp_batch.text import encodable

_TRACES = pl.Schema({"key": pl.String, **IMPORTED})  # sorted by time, then id
_LENGTHS = [
    pl.element().struct.field(name).str.len_bytes().fill_null(0)
    for name in ("content", "input", "output_summary")
]
_SIZE = pl.col("steps").list.eval(pl.sum_horizontal(_LENGTHS)).list.sum() + 1_000
ROW_GROUP_ROWS, ROW_GROUP_BYTES = 1_000, 16 << 20  # of Parquet, at most
PIECE_ROWS, PIECE_BYTES = 200, 1 << 20  # of a day's traces, built at once, at most
_DAY = len("2026-01-31")


class Piece(NamedTuple):
    """Some new traces of a day.

    Attributes:
        day: day of all these traces.
        key: key of the first trace.
        rows: an Arrow stream, in the order of keys.
    """

    day: str
    key: str
    rows: bytes


def day_of(trace: Row) -> str:
    """Return the day of a trace."""
    return trace["metadata"]["created_at"][:_DAY]


def pieces_of(traces: Sequence[Row]) -> list[Piece]:
    """Group traces by day; characters that UTF-8 cannot encode are replaced."""
    ordered, pieces, begin = sorted(traces, key=_key_of), list[Piece](), 0
    # One frame of all, since each frame takes a millisecond; a slice of views would keep all texts.
    table = frame_of(ordered).to_arrow().combine_chunks()
    for day, of_day in groupby(ordered, day_of):
        for group in _cut(of_day):
            rows = table.slice(begin, len(group))
            pieces.append(Piece(day, _key_of(group[0]), _packed(rows)))
            begin += len(group)
    return pieces


def _key_of(trace: Row) -> str:
    return f"{trace['metadata']['created_at']} {trace['id']}"


def _cut(traces: Iterable[Row]) -> Iterator[list[Row]]:
    group, size = list[Row](), 0
    for trace in traces:
        if group and (len(group) == PIECE_ROWS or size > PIECE_BYTES):
            yield group
            group, size = list[Row](), 0
        group.append(trace)
        size += sum(len(x["content"] or "") + len(x["input"] or "") for x in trace["steps"])
    yield group


def frame_of(traces: Sequence[Row]) -> pl.DataFrame:
    """Return a frame of traces and their keys."""
    try:
        return _frame(traces)
    except UnicodeEncodeError:
        texts = (json.dumps(trace, ensure_ascii=False) for trace in traces)
        return _frame([json.loads(encodable(text)) for text in texts])


def _frame(traces: Iterable[Row]) -> pl.DataFrame:
    rows = [(_key_of(trace), *(trace[name] for name in IMPORTED)) for trace in traces]
    return pl.DataFrame(rows, schema=_TRACES, orient="row")


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _unpacked(rows: bytes) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(pa.ipc.open_stream(rows).read_all()))


class DayChanges(Protocol):
    """What changes in the days of an archive."""

    def days(self) -> list[str]:
        """The days with new traces."""
        ...

    def ids(self, day: str) -> list[str]:
        """Return the ids of the new traces in a day."""
        ...

    def pieces(self, day: str) -> Iterator[Piece]:
        """Yield the new traces of a day, in the order of their first keys."""
        ...

    def leaving(self) -> list[tuple[str, str, bool]]:
        """Return days and ids of traces to take out of them, and whether each is in another day."""
        ...


def write_days(archive: Archive, changes: DayChanges, metadata: Mapping[str, str]) -> int:
    """Write days, each completely or not at all; return how many changed.

    A trace that moves is taken out of its old day last, so it is in one day at any moment. Each
    file that is written gets the metadata.
    """
    moving, going = dict[str, set[str]](), dict[str, set[str]]()
    for day, id_, moves in changes.leaving():
        (moving if moves else going).setdefault(day, set()).add(id_)
    gaining = {*changes.days(), *going}

    def old(day: str) -> set[str]:
        return {*changes.ids(day), *going.get(day, ())}

    changed = _write(archive, changes, gaining, old, metadata)
    # A day that has gained traces by now is written once more, without those that have left it.
    changed |= _write(archive, None, moving, lambda day: moving[day] - old(day), metadata)
    return len(changed)


def _write(
    archive: Archive,
    changes: DayChanges | None,
    days: Iterable[str],
    without: Callable[[str], Collection[str]],
    metadata: Mapping[str, str],
) -> set[str]:
    """Write days without some ids and with the new traces; return those that changed."""
    names = {day: f"{day}.parquet" for day in sorted(days)}
    archive.fetch(names.values())
    changed: set[str] = set()
    for day, name in names.items():
        old = _old(archive.local_path(name), without(day))
        new = _new(changes, day) if changes else ()
        rows = _merged(heapq.merge(old, new, key=itemgetter(0)))
        if archive.put(name, partial(_write_day, rows, metadata)):
            changed.add(day)
    archive.store([names[day] for day in sorted(changed)])
    return changed


def _new(changes: DayChanges, day: str) -> Iterator[tuple[str, pl.DataFrame]]:
    return ((piece.key, _unpacked(piece.rows)) for piece in changes.pieces(day))


def _old(path: Path, without: Collection[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the traces that stay in a day's file, in pieces with their first keys."""
    if not path.exists():
        return
    ids = pl.DataFrame({"id": sorted(without)}, schema={"id": pl.String})
    key = pl.concat_str(pl.col("metadata").struct.field("created_at"), "id", separator=" ")
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            rows = cast("pl.DataFrame", pl.from_arrow(file.read_row_group(number)))
            missing = [pl.lit(None, kind).alias(x) for x, kind in IMPORTED.items() if x not in rows]
            rows = rows.with_columns(missing).select(key.alias("key"), *IMPORTED.names())
            rows = rows.join(ids, on="id", how="anti", maintain_order="left")
            if len(rows):
                yield rows["key"][0], rows


def _merged(pieces: Iterable[tuple[str, pl.DataFrame]]) -> Iterator[pl.DataFrame]:
    """Merge pieces, sorted by their first keys, into rows in the order of keys."""
    waiting, size = list[pl.DataFrame](), 0
    for key, rows in pieces:
        if size > ROW_GROUP_BYTES:
            ready = pl.concat(waiting).sort("key")
            yield ready.filter(pl.col("key") < key)
            waiting = [ready.filter(pl.col("key") >= key)]
            size = int(waiting[0].estimated_size())
        waiting.append(rows)
        size += int(rows.estimated_size())
    if waiting:
        yield pl.concat(waiting).sort("key")


def _write_day(rows: Iterable[pl.DataFrame], metadata: Mapping[str, str], path: Path) -> int:
    """Write the rows of a day; return how many."""
    schema = arrow_schema(IMPORTED).with_metadata(dict(metadata))
    number = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _row_groups(rows):
            writer.write_table(group.combine_chunks().cast(schema))
            number += group.num_rows
    return number


def _row_groups(frames: Iterable[pl.DataFrame]) -> Iterator[pa.Table]:
    """Group rows, by the rows alone: some megabytes in each group, unless a row has more."""
    pending, sizes = _table_of(pl.DataFrame(schema=IMPORTED)), list[int]()
    for frame in frames:
        pending = pa.concat_tables([pending, _table_of(frame.select(IMPORTED.names()))])
        sizes += frame.select(_SIZE).to_series().to_list()
        begin = total = 0
        for place, size in enumerate(sizes):
            is_full = place - begin == ROW_GROUP_ROWS or total + size > ROW_GROUP_BYTES
            if place > begin and is_full:
                yield pending.slice(begin, place - begin)
                begin, total = place, 0
            total += size
        pending, sizes = pending.slice(begin), sizes[begin:]
    if pending.num_rows:
        yield pending


def _table_of(frame: pl.DataFrame) -> pa.Table:
    """Return the rows of a frame as a table, without copying its texts."""
    return frame.to_arrow(compat_level=pl.CompatLevel.newest())
