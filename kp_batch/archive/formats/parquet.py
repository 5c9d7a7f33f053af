"""Parquet files: their rows, and refused rows as JSON."""

import json
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from typing import IO, Any, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.archive.file_faults import Fault, UnreadableError
from kp_batch.archive.formats.json_values import BATCH_BYTES, finite
from kp_batch.archive.formats.parquet_columns import columns_read, is_read, row_expressions
from kp_batch.errors import is_passing

READ_AHEAD = 1 << 20  # bytes a column; without a limit pyarrow reads whole row groups ahead


def read_rows(path: str, file: IO[bytes], batch_rows: int) -> Iterator[pl.DataFrame]:
    """The file's rows as frames of `ROWS`, unchecked, in their order.

    Raises:
        UnreadableError: a column that is read is missing or of a wrong type.
    """
    parquet = _open(file)
    columns, faults = _expressions(parquet.schema_arrow.remove_metadata())
    if faults:
        raise UnreadableError(faults)
    first = 0
    for batch in _batches(parquet, batch_rows, _leaves_read(parquet)):
        batch.validate(full=True)  # later steps would break on text that is not UTF-8
        known = columns_read(batch.schema.remove_metadata())
        # A cast to the same types would copy nothing, and yet take as long as to read a small file.
        same = known.equals(batch.schema)
        frame = _as_polars(batch if same else batch.select(known.names).cast(known))
        yield frame.select(
            pl.lit(path).alias("source_file"),
            pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias("row"),
            pl.lit(value=True).alias("is_object"),
            *columns,
        )
        first += len(frame)


def read_raw(file: IO[bytes], rows: list[int], batch_rows: int) -> dict[int, str]:
    """Some rows as JSON texts, by row number, without those that cannot be read.

    Args:
        file: a Parquet file.
        rows: row numbers, ascending.
        batch_rows: rows to hold at a time.

    Returns:
        Each row with all its columns; with the columns of `ROWS` alone if another one is damaged.
    """
    found: dict[int, str] = {}
    for only_read in (True, False):
        try:
            for row, text in _raw_rows(file, rows, batch_rows, only_read=only_read):
                found[row] = text  # noqa: PERF403 (rows before an error are kept)
        except (pa.ArrowException, OSError) as error:
            if is_passing(error):
                raise
    return found


def _open(file: IO[bytes]) -> pq.ParquetFile:
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_AHEAD)


# The files of an archive have few schemas; this takes as long as to read 500 rows.
@lru_cache(maxsize=100)
def _expressions(schema: pa.Schema) -> tuple[list[pl.Expr], list[Fault]]:
    """See `row_expressions`."""
    return row_expressions(_as_polars(columns_read(schema).empty_table()).schema)


def _batches(
    parquet: pq.ParquetFile, most: int, columns: list[str] | None
) -> Iterator[pa.RecordBatch]:
    """The file's rows, at most so many at a time."""
    rows = _rows_at_once(parquet.metadata, most)
    # Each part of an archive is read in a thread of its own.
    return parquet.iter_batches(batch_size=rows, columns=columns, use_threads=False)


def _rows_at_once(metadata: pq.FileMetaData, most: int) -> int:
    """The rows of a batch: fewer where they are large."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    return max(min(most, BATCH_BYTES * metadata.num_rows // max(size, 1)), 1)


def _leaves_read(parquet: pq.ParquetFile) -> list[str]:
    """The physical columns that are read."""
    leaves = [parquet.schema.column(index) for index in range(len(parquet.schema))]
    # pyarrow 26 reads a null column inside a list of structs too short; absent means the same.
    return [
        leaf.path
        for leaf in leaves
        if is_read(leaf.path) and not ("." in leaf.path and str(leaf.logical_type) == "Null")
    ]


def _as_polars(data: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(data, rechunk=False))


def _raw_rows(
    file: IO[bytes], rows: list[int], batch_rows: int, *, only_read: bool
) -> Iterator[tuple[int, str]]:
    parquet = _open(file)
    columns = _leaves_read(parquet) if only_read else None
    first = 0
    for batch in _batches(parquet, batch_rows, columns):
        for row in rows[bisect_left(rows, first) : bisect_left(rows, first + len(batch))]:
            values = {
                name: _value(column[row - first])
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            yield row, json.dumps(values, ensure_ascii=False, default=str)
        first += len(batch)


def _value(scalar: pa.Scalar) -> Any:
    """An Arrow value as Python has it; one that Python cannot hold, as Arrow holds it."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        names = [field.name for field in scalar.type]
        return {name: _value(scalar[index]) for index, name in enumerate(names)}
    if isinstance(scalar, pa.ListScalar) and not isinstance(scalar, pa.MapScalar):
        return [_value(each) for each in scalar.values]
    try:
        return finite(scalar.as_py())
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
    except (ValueError, OverflowError):
        return getattr(scalar, "value", None)
