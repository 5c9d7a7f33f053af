"""Files to rows, a batch at a time: memory is bounded by a batch, whatever the file's size."""

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.archive.columns import Fault, needed, row_expressions
from kp_batch.archive.lines import parse_line, rows_of
from kp_batch.archive.sources import SourceFile, open_file
from kp_batch.contracts import ROWS

# Rows a batch: long traces hold some 50 kB of text, so that a batch stays below 200 MB.
BATCH_ROWS = 4_096
_READ_AHEAD = 1 << 20  # bytes a column is read ahead; without it whole row groups are


class UnreadableError(Exception):
    """A whole file that cannot be read, with everything that is wrong with it."""

    def __init__(self, faults: list[Fault]) -> None:
        """Keep the faults."""
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults = faults


def read_rows(source: SourceFile) -> Iterator[pl.DataFrame]:
    """The file's rows as frames of `ROWS`, unchecked, in their order.

    Raises:
        UnreadableError: the file is no such file, is damaged, or lacks a needed column. Frames that
            came before it are void.
    """
    try:
        if source.size == 0:
            raise UnreadableError([Fault("unreadable_file", "the file is empty (0 bytes)")])
        with open_file(source.path) as file:
            reader = _read_jsonl if source.format == "jsonl" else _read_parquet
            yield from reader(source.path, file)
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UnreadableError([Fault("unreadable_file", f"cannot be read: {reason}")]) from error


def read_raw(source: SourceFile, rows: list[int]) -> Iterator[tuple[int, str]]:
    """Some of the file's rows as they stand, each with its row number, as JSON.

    A line that is no JSON is given as a JSON string.

    Args:
        source: the file, as it was read before.
        rows: row numbers, ascending.
    """
    with open_file(source.path) as file:
        if source.format == "jsonl":
            wanted = set(rows)
            for row, line in enumerate(file):
                if row in wanted:
                    yield row, _as_json(line)
        else:
            yield from _raw_parquet(file, rows)


def _read_parquet(path: str, file: IO[bytes]) -> Iterator[pl.DataFrame]:
    parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=_READ_AHEAD)
    empty = cast("pl.DataFrame", pl.from_arrow(parquet.schema_arrow.empty_table()))
    columns, faults = row_expressions(empty.schema)
    if faults:
        raise UnreadableError(faults)
    leaves = [parquet.schema.column(index).path for index in range(len(parquet.schema))]
    wanted = [leaf for leaf in leaves if needed(leaf)]
    first = 0
    for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
        frame = cast("pl.DataFrame", pl.from_arrow(batch))
        yield frame.select(
            pl.lit(path).alias("source_file"),
            pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias("row"),
            pl.lit(value=True).alias("is_object"),
            **columns,
        ).cast(ROWS)
        first += len(frame)


def _read_jsonl(path: str, file: IO[bytes]) -> Iterator[pl.DataFrame]:
    lines = ((row, line) for row, line in enumerate(file) if line.strip())
    while batch := list(islice(lines, BATCH_ROWS)):
        yield rows_of(path, ((row, parse_line(line)) for row, line in batch))


def _raw_parquet(file: IO[bytes], rows: list[int]) -> Iterator[tuple[int, str]]:
    parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=_READ_AHEAD)
    first = 0
    for batch in parquet.iter_batches(batch_size=BATCH_ROWS):
        inside = [row for row in rows if first <= row < first + len(batch)]
        taken = batch.take(pa.array([row - first for row in inside], pa.int64()))
        for row, value in zip(inside, taken.to_pylist(), strict=True):
            yield row, json.dumps(_plain(value), ensure_ascii=False, default=str)
        first += len(batch)


def _as_json(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return text if parse_line(line) is not None else json.dumps(text, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """The value with NaN and infinity, which JSON does not know, as text."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("list[Any]", value)]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
