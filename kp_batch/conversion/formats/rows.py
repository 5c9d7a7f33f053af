"""Records of rows: lines of JSON, or rows of Parquet, which are measured before unpacking.

Times in Parquet may be finer than Python's own, or lie in years that Python lacks.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from kp_batch import bounds
from kp_batch.archive.file_formats.parquet_batches import ParquetRows
from kp_batch.conversion.conversation.messages import Json
from kp_batch.conversion.formats.json_files import records_of_lines
from kp_batch.conversion.model import ReadItem, Refused, SourceRecord
from kp_batch.errors import MISSING_COLUMN, Fault, UnreadableError
from kp_batch.files import open_regular
from kp_batch.text import time_of_ns

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}  # by units of a timestamp
_TEXTS = (pa.string(), pa.binary())
_LEAST_BYTES = 4  # of most values in Arrow
_AT_ONCE = 16 << 20  # bytes as Python objects, which take far more than in Arrow


def _rows(batch: pa.RecordBatch) -> list[Json]:
    return times_as_text(batch).to_pylist()


@dataclass(frozen=True, kw_only=True)
class RowMap:
    """How the rows of a system become records: rows of Parquet, or lines of JSON.

    Attributes:
        record: makes a record from a row; for a line, it also takes the number. An UnreadableError
            refuses a line, or a whole file of Parquet.
        trace: columns; the first existing one names the trace of a row that is too large to be
            read. Dots lead into structs.
        at_once: maximal rows of Parquet read at once.
        needed: columns without which a file of Parquet is refused; dots lead into structs.
        is_read: whether a column of Parquet is read, by its name.
        rows: converts a batch to JSON; by default, with times as texts.
    """

    record: Callable[..., ReadItem]
    trace: Sequence[str]
    at_once: int
    needed: Sequence[str] = ()
    is_read: Callable[[str], bool] = lambda _: True
    rows: Callable[[pa.RecordBatch], Iterable[Json]] = _rows

    def records(self, path: Path, _: Sequence[Path] = ()) -> Iterator[ReadItem]:
        """Yield the records of a file's rows; one that is too large only has its trace.

        Raises:
            TooLargeError: the file unpacks to too much, or too many lines are refused.
            UnreadableError: the file cannot be unpacked, lacks rows or columns, or has no lines.
        """
        if path.name.lower().endswith(".parquet"):
            return self._of_parquet(path)
        return records_of_lines(path, self.record)

    def _of_parquet(self, path: Path) -> Iterator[ReadItem]:
        number = 0
        with open_regular(path) as file:
            rows = ParquetRows(file)
            self._check(rows.schema)
            for batch in rows.batches(self.at_once, lambda leaf: self.is_read(leaf.split(".")[0])):
                batch.validate(full=True)  # Polars panics at text that is not UTF-8
                number += len(batch)
                yield from self._of_batch(batch)
        if number != rows.number:  # a column is cut; pyarrow reports no error
            raise UnreadableError(f"it declares {rows.number:,} rows, but has {number:,}")

    def _check(self, schema: pa.Schema) -> None:
        names = {*schema.names, *(inner.name for field in schema for inner in field.flatten())}
        if missing := [name for name in self.needed if name not in names]:
            raise UnreadableError(Fault(MISSING_COLUMN, f"it has no column {', '.join(missing)}"))

    def _of_batch(self, batch: pa.RecordBatch) -> Iterator[ReadItem]:
        step = max(len(batch) * _AT_ONCE // max(batch.nbytes, 1), 1)
        first = 0
        for row in [*_large_rows(batch), len(batch)]:
            for start in range(first, row, step):
                yield from map(self.record, self.rows(batch.slice(start, min(step, row - start))))
            if row < len(batch):
                yield _large(batch.slice(row, 1), self.trace)
            first = row + 1


def _large(row: pa.RecordBatch, trace: Sequence[str]) -> SourceRecord | Refused:
    """Return the record of a row that is too large."""
    columns = (column for name in trace if (column := _column(row, name)) is not None)
    column = next(columns, None)
    is_small = column is not None and not _is_large(pa.record_batch({"id": column}))
    if column is not None and is_small and (id_ := column[0].as_py()):
        return SourceRecord(str(id_), None)
    return Refused([bounds.TOO_LARGE], "a row that is too large to be read")


def _large_rows(batch: pa.RecordBatch, first: int = 0) -> Iterator[int]:
    """Yield the rows beyond a limit, counted from `first`, by halving batches that are large."""
    if batch.nbytes <= min(bounds.TEXT_BYTES, _LEAST_BYTES * bounds.VALUES):
        return
    if len(batch) > 1:
        middle = len(batch) // 2
        yield from _large_rows(batch.slice(0, middle), first)
        yield from _large_rows(batch.slice(middle), first + middle)
    elif _is_large(batch):
        yield first


def _is_large(row: pa.RecordBatch) -> bool:
    """Whether a row has a text, or values or bytes, beyond the limits."""
    if row.nbytes > bounds.LINE_BYTES:
        return True
    leaves = [leaf for column in row.columns for leaf in _leaves(column)]
    longest = max((_longest(leaf) for leaf in leaves if leaf.type in _TEXTS), default=0)
    return longest > bounds.TEXT_BYTES or sum(map(len, leaves)) > bounds.VALUES


def _longest(texts: pa.Array) -> int:
    lengths = pc.call_function("binary_length", [texts])
    return pc.call_function("max", [lengths]).as_py() or 0


def _leaves(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the values within a column, at any depth."""
    kind = values.type
    if pa.types.is_struct(kind):
        for member in values.flatten():
            yield from _leaves(member)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        yield from _leaves(values.flatten())
    else:
        yield values


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    if name in rows.schema.names:
        return rows.column(name)
    top, _, inner = name.partition(".")
    if top not in rows.schema.names or not pa.types.is_struct(rows.column(top).type):
        return None
    struct = rows.column(top)
    return struct.field(inner) if struct.type.get_field_index(inner) >= 0 else None


def plain(value: object) -> object:
    """Return JSON without pictures, and without keys that a struct only has for other rows."""
    if isinstance(value, dict):
        pairs = ((name, plain(inner)) for name, inner in cast("Json", value).items())
        return {name: inner for name, inner in pairs if inner is not None}
    if isinstance(value, list):
        return [plain(item) for item in cast("list[object]", value)]
    if isinstance(value, bytes) or (isinstance(value, float) and isnan(value)):
        return None  # pandas writes None as NaN
    return value if isinstance(value, str | int | float | None) else str(value)


def times_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with its times as texts, in UTC.

    A timestamp outside the years 1 to 9999 becomes its count: not a time, but a value.
    """
    columns = [_as_text(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _as_text(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        size = NANOSECONDS[column.type.unit]
        counts = column.cast(pa.int64()).to_pylist()
        return pa.array([None if x is None else _time(x, size) for x in counts], pa.string())
    kind = _with_texts(column.type)
    return column if kind == column.type else column.cast(kind)


def _time(count: int, size: int) -> str:
    time = time_of_ns(count * size)
    return time.isoformat() if time else str(count)


def _with_texts(kind: pa.DataType) -> pa.DataType:
    """Return the type with texts in place of times, at any depth."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_texts(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_texts(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_with_texts(kind.item_type)))
    return pa.string() if pa.types.is_temporal(kind) else kind
