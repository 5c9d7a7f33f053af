"""Parquet files: their rows, and some of them again as JSON."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import IO, Any, cast

import polars as pl
import pyarrow as pa

from kp_batch.archive.formats.json_values import Batch, finite, refuse_large
from kp_batch.archive.formats.parquet_batches import ParquetRows
from kp_batch.archive.formats.parquet_columns import columns_read, is_read, row_expressions
from kp_batch.errors import is_of_machine, is_passing
from kp_batch.file_faults import Fault, UnreadableError

_AT_ONCE = 128  # rows as Python objects, which take far more memory than in Arrow


def read_batches(path: str, file: IO[bytes], batch_rows: int) -> Iterator[Batch]:
    """The file's rows, in their order.

    Raises:
        UnreadableError: a column that is read is missing or of a wrong type, rows are missing, or
            the file unpacks to too much.
    """
    rows = ParquetRows(file)
    columns, faults = _expressions(rows.schema)
    if faults:
        raise UnreadableError(*faults)
    whole = _WholeRows(rows.batches(batch_rows))
    first = 0
    for batch in rows.batches(batch_rows, is_read):
        batch.validate(full=True)  # later steps would break on text that is not UTF-8
        known = columns_read(batch.schema)
        # A cast to the same types would copy nothing, and yet take as long as to read a small file.
        same = known.equals(batch.schema)
        frame = _as_polars(batch if same else batch.select(known.names).cast(known))
        checked = refuse_large(
            frame.select(
                pl.lit(path).alias("source_file"),
                pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias("row"),
                pl.lit(None, pl.String).alias("fault"),
                *columns,
            )
        )
        yield Batch(checked, partial(whole.as_json, first, batch))
        first += len(frame)
    # Where a column is cut, pyarrow ends without a word.
    if first != rows.number:
        fault = f"the file tells of {rows.number:,} rows, and only {first:,} can be read"
        raise UnreadableError(fault)


class _WholeRows:
    """The rows of a file with all their columns, decoded only as far as they are asked for.

    Args:
        batches: of the file, in their order.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._first = self._end = 0

    def as_json(self, first: int, read: pa.RecordBatch, rows: Sequence[int]) -> Iterator[str]:
        """Some rows as JSON texts; with the columns in `ROWS` alone where another is damaged.

        Args:
            first: the number of the first row of `read`.
            read: the columns in `ROWS` of the rows around those that are asked for.
            rows: row numbers, ascending in all calls.

        Raises:
            OSError: the disk or the network failed.
        """
        left = deque(rows)
        while left:
            start, batch = self._around(left[0]) or (first, read)
            some: list[int] = []
            while left and left[0] < start + len(batch) and len(some) < _AT_ONCE:
                some.append(left.popleft() - start)
            yield from _texts(batch, some)

    def _around(self, row: int) -> tuple[int, pa.RecordBatch] | None:
        """The batch that holds a row, with the number of its first one; None: it is damaged."""
        while self._batch is None or row >= self._end:
            try:
                self._batch = next(self._batches, None)
            except (pa.ArrowException, UnreadableError, OSError) as error:
                if is_passing(error) or is_of_machine(error):
                    raise
                self._batch = None
            if self._batch is None:
                return None
            self._first, self._end = self._end, self._end + len(self._batch)
        return self._first, self._batch


def read_raw(file: IO[bytes], rows: Iterable[int], batch_rows: int) -> Iterator[tuple[int, str]]:
    """Some rows as JSON texts with all their columns, and their numbers.

    Args:
        file: a Parquet file.
        rows: row numbers, ascending, which are taken as they are needed.
        batch_rows: rows to hold at a time.

    Raises:
        pa.ArrowException: a column is damaged.
        OSError: likewise, or the disk or the network failed.
    """
    wanted = iter(rows)
    row = next(wanted, None)
    first = 0
    for batch in ParquetRows(file).batches(batch_rows):
        found: list[int] = []
        while row is not None and row < first + len(batch):
            found.append(row)
            row = next(wanted, None)
        yield from zip(found, _texts(batch, [each - first for each in found]), strict=True)
        if row is None:
            return
        first += len(batch)


# The files of an archive have few schemas; this takes as long as to read 500 rows.
@lru_cache(maxsize=100)
def _expressions(schema: pa.Schema) -> tuple[list[pl.Expr], list[Fault]]:
    """See `row_expressions`."""
    return row_expressions(_as_polars(columns_read(schema).empty_table()).schema)


def _as_polars(data: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(data, rechunk=False))


def _texts(batch: pa.RecordBatch, rows: list[int]) -> list[str]:
    """Some rows of a batch as JSON texts."""
    if not rows:
        return []
    # Arrow's take lacks columns of views.
    taken = pa.concat_batches([batch.slice(row, 1) for row in rows])
    try:  # of a hundred thousand rows, hardly one holds what JSON or Python lacks
        return [_json(row, allow_nan=False) for row in taken.to_pylist()]
    except (ValueError, OverflowError):
        names = taken.schema.names
        return [
            _json({name: _value(column[row]) for name, column in zip(names, taken, strict=True)})
            for row in range(len(taken))
        ]


def _json(row: dict[str, Any], *, allow_nan: bool = True) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=allow_nan, default=_in_json)


def _in_json(value: Any) -> str | float:
    """A value that JSON lacks as one that is read as the same value."""
    if isinstance(value, Decimal):
        return float(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _value(scalar: pa.Scalar) -> Any:
    """An Arrow value as Python has it; one that Python cannot hold, as Arrow holds it."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        names = [field.name for field in scalar.type]
        return {name: _value(scalar[index]) for index, name in enumerate(names)}
    if isinstance(scalar, pa.TimestampScalar) and scalar.type.unit == "ns":
        scalar = scalar.cast(pa.timestamp("us", scalar.type.tz), safe=False)
    if isinstance(scalar, pa.ListScalar) and not isinstance(scalar, pa.MapScalar):
        return [_value(each) for each in scalar.values]
    try:
        return finite(scalar.as_py())
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
    except (ValueError, OverflowError):
        return getattr(scalar, "value", None)
