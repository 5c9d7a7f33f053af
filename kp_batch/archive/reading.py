"""Files to rows, a batch at a time: memory is bounded by a batch, whatever the file's size."""

from collections.abc import Iterator
from itertools import islice
from typing import IO, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars.exceptions import PanicException

from kp_batch.archive.formats.jsonl import parse_line, rows_of
from kp_batch.archive.formats.parquet_columns import Fault, needed, readable, row_expressions
from kp_batch.archive.sources import SourceFile, open_file
from kp_batch.contracts import ROWS

# Rows a batch: long traces hold some 50 kB of text, so that a batch stays below 200 MB.
BATCH_ROWS = 4_096
READ_AHEAD = 1 << 20  # bytes a column is read ahead; without it whole row groups are


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
        ConnectionError, TimeoutError: it could not be fetched; another try may.
    """
    if source.size == 0:
        raise UnreadableError([Fault("unreadable_file", "the file is empty (0 bytes)")])
    reader = _read_jsonl if source.format == "jsonl" else _read_parquet
    try:
        with open_file(source.path) as file:
            yield from reader(source.path, file)
    except (UnreadableError, ConnectionError, TimeoutError, MemoryError):
        raise
    except (Exception, PanicException) as error:  # damage shows in any way that there is
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UnreadableError([Fault("unreadable_file", f"cannot be read: {reason}")]) from error


def _read_parquet(path: str, file: IO[bytes]) -> Iterator[pl.DataFrame]:
    parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_AHEAD)
    schema = readable(parquet.schema_arrow)
    columns, faults = row_expressions(_as_polars(schema.empty_table()).schema)
    if faults:
        raise UnreadableError(faults)
    first = 0
    for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=needed_leaves(parquet)):
        batch.validate(full=True)  # text that is not UTF-8 would break what comes after
        known = readable(batch.schema)
        frame = _as_polars(batch.select(known.names).cast(known))
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


def needed_leaves(parquet: pq.ParquetFile) -> list[str]:
    """The physical columns that are read."""
    leaves = [parquet.schema.column(index) for index in range(len(parquet.schema))]
    # pyarrow 26 reads a null column inside a list of structs too short; absent means the same.
    return [
        leaf.path
        for leaf in leaves
        if needed(leaf.path) and not ("." in leaf.path and str(leaf.logical_type) == "Null")
    ]


def _as_polars(data: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(data))
