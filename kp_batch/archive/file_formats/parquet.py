"""Parquet files: columns of any physical type as columns of `ROWS`, and rows as JSON."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import IO, Any, cast

import polars as pl
import pyarrow as pa

from kp_batch.archive.columns import FIELDS, STEP_FIELDS, STEPS, Field, times_from_text
from kp_batch.archive.file_formats.json import Batch, finite, reject_large
from kp_batch.archive.file_formats.parquet_batches import ParquetRows, release_memory
from kp_batch.errors import (
    MISSING_COLUMN,
    WRONG_COLUMN_TYPE,
    Fault,
    UnreadableError,
    is_of_machine,
    is_passing,
)
from kp_batch.schemas import ROWS, TIMESTAMP
from kp_batch.text import shortened

_AT_ONCE = 128  # rows as Python objects, which take far more memory than Arrow's

_MICROSECONDS = {"us": 1, "ms": 1_000, "d": 86_400_000_000}
_FARTHEST = 2**62  # microseconds before or after 1970
_TEXT = (pl.String, pl.Binary, pl.Null)


def read_batches(path: str, file: IO[bytes], batch_rows: int) -> Iterator[Batch]:
    """Yield the file's rows, in order.

    Raises:
        UnreadableError: a required column is missing, a column has a wrong type, rows are missing,
            or the file unpacks to too much.
    """
    rows = ParquetRows(file)
    columns, faults = _expressions(rows.schema)
    if faults:
        raise UnreadableError(*faults)
    all_columns = _AllColumns(rows.batches(batch_rows))
    first = 0
    for batch in rows.batches(batch_rows, is_read):
        batch.validate(full=True)  # later steps would fail on text that is not UTF-8
        schema = _columns_read(batch.schema)
        # A cast to the same types copies nothing, but takes as long as reading a small file.
        is_same = schema.equals(batch.schema)
        frame = _as_polars(batch if is_same else batch.select(schema.names).cast(schema))
        checked = reject_large(
            frame.select(
                pl.lit(path).alias("source_file"),
                pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias("row"),
                pl.lit(None, pl.String).alias("fault"),
                *columns,
            )
        )
        release_memory()  # each reading thread would keep as much as several batches
        yield Batch(checked, partial(all_columns.as_json, first, batch))
        first += len(frame)
        del batch, frame, checked
        release_memory()
    # If a column is truncated, pyarrow ends without an error.
    if first != rows.number:
        fault = f"the file declares {rows.number:,} rows, but only {first:,} can be read"
        raise UnreadableError(fault)


class _AllColumns:
    """The rows of a file with all columns, decoded only as far as needed."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._first = self._end = 0

    def as_json(self, first: int, read: pa.RecordBatch, rows: Sequence[int]) -> Iterator[str]:
        """Yield some rows, ascending over all calls, as JSON texts.

        If a column is damaged, they come from `read` instead: a batch that begins at row `first`
        and only has the columns in `ROWS`.
        """
        pending = deque(rows)
        while pending:
            start, batch = self._batch_of(pending[0]) or (first, read)
            indices: list[int] = []
            while pending and pending[0] < start + len(batch) and len(indices) < _AT_ONCE:
                indices.append(pending.popleft() - start)
            yield from _texts(batch, indices)

    def _batch_of(self, row: int) -> tuple[int, pa.RecordBatch] | None:
        """Return the number of a batch's first row, and the batch with `row`; None if damaged."""
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
    """Yield some rows as JSON texts with all their columns, and their numbers.

    See `FileFormat`. It advances the iterator of the numbers only as needed.

    Raises:
        pa.ArrowException: a column is damaged.
        OSError: a column is damaged, or the disk or the network failed.
    """
    wanted = iter(rows)
    row = next(wanted, None)
    first = 0
    for batch in ParquetRows(file).batches(batch_rows):
        numbers: list[int] = []
        while row is not None and row < first + len(batch):
            numbers.append(row)
            row = next(wanted, None)
        texts = _texts(batch, [number - first for number in numbers])
        yield from zip(numbers, texts, strict=True)
        if row is None:
            return
        first += len(batch)


def _as_polars(data: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(data, rechunk=False))


def _texts(batch: pa.RecordBatch, rows: list[int]) -> list[str]:
    """Return some rows of a batch as JSON texts."""
    if not rows:
        return []
    chosen = batch.take(pa.array(rows))
    try:  # hardly any row has values that JSON or Python lacks
        return [_json(row, allow_nan=False) for row in chosen.to_pylist()]
    except (ValueError, OverflowError):
        names = chosen.schema.names
        return [
            _json({name: _value(column[row]) for name, column in zip(names, chosen, strict=True)})
            for row in range(len(chosen))
        ]


def _json(row: dict[str, Any], *, allow_nan: bool = True) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=allow_nan, default=_json_value)


def _json_value(value: Any) -> str | float:
    """Return a value that JSON lacks in a form that is read as the same value."""
    if isinstance(value, Decimal):
        return float(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _value(scalar: pa.Scalar) -> Any:
    """Return an Arrow value in Python; if Python cannot represent it, as Arrow stores it."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        names = [field.name for field in scalar.type]
        return {name: _value(scalar[index]) for index, name in enumerate(names)}
    if isinstance(scalar, pa.TimestampScalar) and scalar.type.unit == "ns":
        scalar = scalar.cast(pa.timestamp("us", scalar.type.tz), safe=False)
    if isinstance(scalar, pa.ListScalar) and not isinstance(scalar, pa.MapScalar):
        return [_value(item) for item in scalar.values]
    try:
        return finite(scalar.as_py())
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
    except (ValueError, OverflowError):
        return getattr(scalar, "value", None)


@dataclass(frozen=True)
class _TypeRule:
    """Which Parquet types a type of `ROWS` can be read from, and how."""

    expected: str
    accepts: Callable[[pl.DataType], bool]
    read: Callable[[pl.Expr, pl.DataType], pl.Expr]


def _is_text(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or isinstance(dtype, _TEXT)


def _read_time(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Datetime | pl.Date):
        # With or without a zone, the count is in UTC. Far outside all calendars it is not a time.
        count = value.to_physical().cast(pl.Int64)
        unit = dtype.time_unit if isinstance(dtype, pl.Datetime) else "d"
        if unit == "ns":
            return (count // 1_000).cast(TIMESTAMP)
        size = _MICROSECONDS[unit]
        return pl.when(count.is_between(-_FARTHEST // size, _FARTHEST // size)).then(
            (count * size).cast(TIMESTAMP)
        )
    text = value.cast(pl.String, strict=False)
    return text.map_batches(times_from_text, return_dtype=TIMESTAMP, is_elementwise=True)


_TYPE_RULES: Mapping[pl.DataType, _TypeRule] = {
    pl.String(): _TypeRule("text", _is_text, lambda value, _: value.cast(pl.String, strict=False)),
    TIMESTAMP: _TypeRule(
        "a timestamp or ISO 8601 text",
        lambda dtype: isinstance(dtype, (*_TEXT, pl.Date, pl.Datetime)),
        _read_time,
    ),
    pl.Boolean(): _TypeRule(
        "true or false",
        lambda dtype: isinstance(dtype, (pl.Boolean, pl.Null)),
        lambda value, _: value.cast(pl.Boolean),
    ),
    pl.Float64(): _TypeRule(
        "a number",
        lambda dtype: dtype.is_numeric() or dtype == pl.Null,
        lambda value, _: value.cast(pl.Float64),
    ),
}


def is_read(column: str) -> bool:
    """Whether a leaf column of a Parquet file is read, by its dotted physical path."""
    parts = tuple(column.split("."))
    if parts[0] != STEPS:
        return any(field.path[: len(parts)] == parts for field in FIELDS.values())
    # Between the list and its elements, writers put one or two levels with varying names.
    inside = [parts[skipped:] for skipped in (1, 2, 3)]
    paths = [field.path for field in STEP_FIELDS.values()]
    return any(path[: len(rest)] == rest for path in paths for rest in inside)


def _columns_read(schema: pa.Schema) -> pa.Schema:
    """Return the top-level columns that are read, in types that Polars supports."""
    roots = {STEPS, *(field.path[0] for field in FIELDS.values())}
    columns = (column for column in schema if column.name in roots)
    return pa.schema([column.with_type(_supported(column.type)) for column in columns])


def _supported(dtype: pa.DataType) -> pa.DataType:
    """Return a type that Polars supports."""
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_supported(field.type)) for field in dtype])
    return pa.float64() if pa.types.is_decimal256(dtype) else dtype


# The files of an archive have few schemas; making this takes as long as reading 500 rows.
@lru_cache(maxsize=100)
def _expressions(file_schema: pa.Schema) -> tuple[list[pl.Expr], list[Fault]]:
    """Return the expressions that read a file of this schema.

    Returns:
        An expression for each column of `ROWS` in the file, in their order; and all faults of the
        schema, with faults of one code merged.
    """
    schema = _as_polars(_columns_read(file_schema).empty_table()).schema
    faults: list[Fault] = []
    top = pl.Struct(dict(schema))
    columns = {name: _resolve(field, None, top, faults, "") for name, field in FIELDS.items()}
    steps, element = _steps(schema, faults)
    columns["null_steps"] = steps.list.eval(pl.element().is_null()).list.sum().cast(pl.Int64)
    for name, field in STEP_FIELDS.items():
        value = _resolve(field, pl.element().drop_nulls(), element, faults, f"{STEPS}[].")
        columns[name] = steps.list.eval(value)
    typed = [value.cast(ROWS[name]).alias(name) for name, value in columns.items()]
    return typed, _merge(faults)


def _merge(faults: list[Fault]) -> list[Fault]:
    """Merge faults by code; before, the message of a missing column is its name."""
    missing = ", ".join(fault.message for fault in faults if fault.code == MISSING_COLUMN)
    wrong = "; ".join(fault.message for fault in faults if fault.code == WRONG_COLUMN_TYPE)
    merged = [Fault(MISSING_COLUMN, f"no column {missing}")] if missing else []
    if wrong:
        merged.append(Fault(WRONG_COLUMN_TYPE, wrong))
    return merged


def _steps(schema: pl.Schema, faults: list[Fault]) -> tuple[pl.Expr, pl.DataType]:
    """Return the steps as a list of structs, and the struct's type."""
    absent = pl.Struct({"type": pl.Null})
    dtype = schema.get(STEPS)
    if isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.Struct):
        return pl.col(STEPS), dtype.inner
    if dtype is None:
        faults.append(Fault(MISSING_COLUMN, STEPS))
    elif dtype != pl.Null and getattr(dtype, "inner", None) != pl.Null:
        faults.append(_wrong_type(STEPS, dtype, "a list of structs"))
    return pl.lit(None, pl.List(absent)), absent


def _resolve(
    field: Field, start: pl.Expr | None, dtype: pl.DataType, faults: list[Fault], prefix: str
) -> pl.Expr:
    """Follow a field's path; an absent value is null, a wrong type is a fault."""
    name = prefix + ".".join(field.path)
    value = start
    for part in field.path:
        if dtype == pl.Null:
            break
        if not isinstance(dtype, pl.Struct):
            faults.append(_wrong_type(name, dtype, "a struct around it"))
            return pl.lit(None)
        inner = {member.name: member.dtype for member in dtype.fields}
        if field.required and part not in inner:
            faults.append(Fault(MISSING_COLUMN, name))
        value = pl.col(part) if value is None else value.struct.field(part)
        member = inner.get(part, pl.Null())
        dtype = member if isinstance(member, pl.DataType) else member()
    if dtype == pl.Null:
        # One null for each step, since `start` itself is never null there.
        return pl.lit(None) if start is None else pl.when(start.is_null()).then(pl.lit(""))
    kind = _TYPE_RULES[field.dtype]
    if not kind.accepts(dtype):
        if field.checked:
            faults.append(_wrong_type(name, dtype, kind.expected))
        return pl.lit(None)
    return kind.read(cast("pl.Expr", value), dtype)


def _wrong_type(name: str, dtype: pl.DataType, expected: str) -> Fault:
    return Fault(WRONG_COLUMN_TYPE, f"{name} is {shortened(str(dtype), 40)}, expected {expected}")
