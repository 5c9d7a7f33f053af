"""Parquet columns of whatever physical type, as the columns of `ROWS`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import polars as pl
import pyarrow as pa

from kp_batch.archive.fields import FIELDS, STEP_FIELDS, STEPS, Field
from kp_batch.archive.timestamps import from_text
from kp_batch.contracts import ROWS, TIMESTAMP
from kp_batch.file_faults import MISSING_COLUMN, WRONG_COLUMN_TYPE, Fault
from kp_batch.text import shortened

_MICROSECONDS = {"us": 1, "ms": 1_000, "d": 86_400_000_000}
_FARTHEST = 2**62  # microseconds, either way
_TEXT = (pl.String, pl.Categorical, pl.Enum, pl.Binary, pl.Null)


@dataclass(frozen=True)
class _Kind:
    """How the values of one type of `ROWS` stand in Parquet, and how they are read."""

    expected: str
    accepts: Callable[[pl.DataType], bool]
    read: Callable[[pl.Expr, pl.DataType], pl.Expr]


def _is_text(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or isinstance(dtype, _TEXT)


def _read_time(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Datetime | pl.Date):
        # With or without a zone the count is in UTC. Far outside all calendars it is no time.
        count = value.to_physical().cast(pl.Int64)
        unit = dtype.time_unit if isinstance(dtype, pl.Datetime) else "d"
        if unit == "ns":
            return (count // 1_000).cast(TIMESTAMP)
        size = _MICROSECONDS[unit]
        return pl.when(count.is_between(-_FARTHEST // size, _FARTHEST // size)).then(
            (count * size).cast(TIMESTAMP)
        )
    text = value.cast(pl.String, strict=False)
    return text.map_batches(from_text, return_dtype=TIMESTAMP, is_elementwise=True)


_KINDS: Mapping[pl.DataType, _Kind] = {
    pl.String(): _Kind("text", _is_text, lambda value, _: value.cast(pl.String, strict=False)),
    TIMESTAMP: _Kind(
        "a timestamp or ISO 8601 text",
        lambda dtype: isinstance(dtype, (*_TEXT, pl.Date, pl.Datetime)),
        _read_time,
    ),
    pl.Boolean(): _Kind(
        "true or false",
        lambda dtype: isinstance(dtype, (pl.Boolean, pl.Null)),
        lambda value, _: value.cast(pl.Boolean),
    ),
    pl.Float64(): _Kind(
        "a number",
        lambda dtype: dtype.is_numeric() or dtype == pl.Null,
        lambda value, _: value.cast(pl.Float64),
    ),
}


def is_read(column: str) -> bool:
    """Whether a leaf column of a Parquet file, by its dotted physical path, is read."""
    parts = tuple(column.split("."))
    if parts[0] != STEPS:
        return any(field.path[: len(parts)] == parts for field in FIELDS.values())
    # Between the list and its elements writers put one or two levels under names of their own.
    inside = [parts[skipped:] for skipped in (1, 2, 3)]
    paths = [field.path for field in STEP_FIELDS.values()]
    return any(path[: len(rest)] == rest for path in paths for rest in inside)


def columns_read(schema: pa.Schema) -> pa.Schema:
    """The top-level columns that hold a value that is read, in types that Polars knows."""
    roots = {STEPS, *(field.path[0] for field in FIELDS.values())}
    return pa.schema([each.with_type(_known(each.type)) for each in schema if each.name in roots])


def _known(dtype: pa.DataType) -> pa.DataType:
    """The type as Polars knows it: a zone such as +05:30 becomes UTC, which is the same instant."""
    if pa.types.is_struct(dtype):
        return pa.struct([each.with_type(_known(each.type)) for each in dtype])
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return pa.timestamp(dtype.unit, "UTC")
    return pa.float64() if pa.types.is_decimal256(dtype) else dtype


def row_expressions(schema: pl.Schema) -> tuple[list[pl.Expr], list[Fault]]:
    """The expressions that read a file of this schema.

    Returns:
        An expression for each column of `ROWS` that the file gives, in their order, and all faults
        of the schema, those of one code together.
    """
    faults: list[Fault] = []
    top = pl.Struct(dict(schema))
    columns = {name: _resolve(field, None, top, faults, "") for name, field in FIELDS.items()}
    steps, element = _steps(schema, faults)
    columns["null_steps"] = steps.list.eval(pl.element().is_null()).list.sum().cast(pl.Int64)
    for name, field in STEP_FIELDS.items():
        value = _resolve(field, pl.element().drop_nulls(), element, faults, f"{STEPS}[].")
        columns[name] = steps.list.eval(value)
    typed = [value.cast(ROWS[name]).alias(name) for name, value in columns.items()]
    return typed, _together(faults)


def _together(faults: list[Fault]) -> list[Fault]:
    """One fault for each code; of a missing column the message was its name."""
    missing = ", ".join(each.message for each in faults if each.code == MISSING_COLUMN)
    wrong = "; ".join(each.message for each in faults if each.code == WRONG_COLUMN_TYPE)
    told = [Fault(MISSING_COLUMN, f"no column {missing}")] if missing else []
    if wrong:
        told.append(Fault(WRONG_COLUMN_TYPE, wrong))
    return told


def _steps(schema: pl.Schema, faults: list[Fault]) -> tuple[pl.Expr, pl.DataType]:
    """The steps as a list of structs, whatever kind of list holds them, and the struct's type."""
    nothing = pl.Struct({"type": pl.Null})
    dtype = schema.get(STEPS)
    if isinstance(dtype, (pl.List, pl.Array)) and isinstance(dtype.inner, pl.Struct):
        steps = pl.col(STEPS)
        return steps.arr.to_list() if isinstance(dtype, pl.Array) else steps, dtype.inner
    if dtype is None:
        faults.append(Fault(MISSING_COLUMN, STEPS))
    elif dtype != pl.Null and getattr(dtype, "inner", None) != pl.Null:
        faults.append(_wrong_type(STEPS, dtype, "a list of structs"))
    return pl.lit(None, pl.List(nothing)), nothing


def _resolve(
    field: Field, start: pl.Expr | None, dtype: pl.DataType, faults: list[Fault], prefix: str
) -> pl.Expr:
    """Walk down the field's path. An absent value reads as null; a wrong type is a fault."""
    name = prefix + ".".join(field.path)
    value = start
    for part in field.path:
        if dtype == pl.Null:
            break
        if not isinstance(dtype, pl.Struct):
            faults.append(_wrong_type(name, dtype, "a struct around it"))
            return pl.lit(None)
        inner = {each.name: each.dtype for each in dtype.fields}
        if field.required and part not in inner:
            faults.append(Fault(MISSING_COLUMN, name))
        value = pl.col(part) if value is None else value.struct.field(part)
        found = inner.get(part, pl.Null())
        dtype = found if isinstance(found, pl.DataType) else found()
    if dtype == pl.Null:
        # One null for each step: `start` itself is never null there.
        return pl.lit(None) if start is None else pl.when(start.is_null()).then(pl.lit(""))
    kind = _KINDS[field.dtype]
    if not kind.accepts(dtype):
        if field.checked:
            faults.append(_wrong_type(name, dtype, kind.expected))
        return pl.lit(None)
    return kind.read(cast("pl.Expr", value), dtype)


def _wrong_type(name: str, got: pl.DataType, expected: str) -> Fault:
    return Fault(WRONG_COLUMN_TYPE, f"{name} is {shortened(str(got), 40)}, expected {expected}")
