"""Parquet columns of whatever physical type, as the columns of `ROWS`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from kp_batch.archive.clock import from_text
from kp_batch.contracts import TIMESTAMP

_TEXT = (pl.String, pl.Categorical, pl.Enum, pl.Binary, pl.Null)


@dataclass(frozen=True)
class Field:
    """One value of a trace: where it stands, what types it may have, how it is read."""

    path: tuple[str, ...]
    expected: str
    accepts: Callable[[pl.DataType], bool]
    read: Callable[[pl.Expr, pl.DataType], pl.Expr]
    required: bool = True


@dataclass(frozen=True)
class Fault:
    """What keeps a whole file from being read."""

    code: str
    message: str


def _is_text(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or isinstance(dtype, _TEXT)


def _text(path: str, *, required: bool = True) -> Field:
    return Field(
        tuple(path.split("/")),
        "text",
        _is_text,
        lambda value, _: value.cast(pl.String, strict=False),
        required,
    )


def _read_time(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Datetime):
        in_utc = (
            value.dt.convert_time_zone("UTC")
            if dtype.time_zone
            else value.dt.replace_time_zone("UTC")
        )
        return in_utc.cast(TIMESTAMP)
    if dtype == pl.Date:
        return value.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    return from_text(value.cast(pl.String, strict=False))


FIELDS: Mapping[str, Field] = {
    "type": _text("@type", required=False),
    "trace_id": _text("id"),
    "created_at": Field(
        ("metadata", "created_at"),
        "a timestamp or ISO 8601 text",
        lambda dtype: isinstance(dtype, (*_TEXT, pl.Date, pl.Datetime)),
        _read_time,
    ),
    "task_domain": _text("metadata/task_domain"),
    "agent_id": _text("metadata/agent_id", required=False),
    "framework": _text("metadata/framework", required=False),
    "success": Field(
        ("metadata", "success"),
        "true or false",
        lambda dtype: isinstance(dtype, (pl.Boolean, pl.Null)),
        lambda value, _: value.cast(pl.Boolean),
    ),
    "confidence": Field(
        ("outcome", "confidence"),
        "a number",
        lambda dtype: dtype.is_numeric() or dtype == pl.Null,
        lambda value, _: value.cast(pl.Float64),
    ),
    "objective": _text("task/objective"),
}
STEP_FIELDS: Mapping[str, Field] = {
    "step_types": _text("type"),
    "step_contents": _text("content", required=False),
    "step_tools": _text("tool/name", required=False),
}
_STEPS = "steps"


def needed(column: str) -> bool:
    """Whether a Parquet leaf column, by its dotted physical path, holds anything that is read."""
    parts = column.split(".")
    if parts[0] != _STEPS:
        return any(field.path == tuple(parts) for field in FIELDS.values())
    # Between the list and its elements writers put one or two levels, of names of their own.
    ends = [field.path for field in STEP_FIELDS.values()]
    return any(tuple(parts[-len(end) :]) == end and len(parts) - len(end) <= 3 for end in ends)


def row_expressions(schema: pl.Schema) -> tuple[dict[str, pl.Expr], list[Fault]]:
    """How to read a file of that schema: an expression a column of `ROWS`, and all its faults."""
    faults: list[Fault] = []
    top = pl.Struct(dict(schema))
    columns = {
        name: _resolve(field, None, top, faults, "").alias(name) for name, field in FIELDS.items()
    }
    steps, element = _steps(schema, faults)
    columns["null_steps"] = steps.list.eval(pl.element().is_null()).list.sum().cast(pl.Int64)
    for name, field in STEP_FIELDS.items():
        value = _resolve(field, pl.element().drop_nulls(), element, faults, f"{_STEPS}[].")
        columns[name] = steps.list.eval(value)
    return {name: value.alias(name) for name, value in columns.items()}, faults


def _steps(schema: pl.Schema, faults: list[Fault]) -> tuple[pl.Expr, pl.DataType]:
    """The steps as a list of structs, whatever kind of list they are."""
    nothing = pl.Struct({"type": pl.Null})
    dtype = schema.get(_STEPS)
    if isinstance(dtype, (pl.List, pl.Array)) and isinstance(dtype.inner, pl.Struct):
        steps = pl.col(_STEPS)
        return steps.arr.to_list() if isinstance(dtype, pl.Array) else steps, dtype.inner
    if dtype is None:
        faults.append(Fault("missing_column", f"the column {_STEPS} is missing"))
    elif dtype != pl.Null and getattr(dtype, "inner", None) != pl.Null:
        faults.append(_wrong_type(_STEPS, dtype, "a list of structs"))
    return pl.lit(None, pl.List(nothing)), nothing


def _resolve(
    field: Field, value: pl.Expr | None, dtype: pl.DataType, faults: list[Fault], prefix: str
) -> pl.Expr:
    """Walk down the field's path; what is absent reads as null, what is amiss is a fault."""
    name = prefix + ".".join(field.path)
    for part in field.path:
        if dtype == pl.Null:
            break
        if not isinstance(dtype, pl.Struct):
            faults.append(_wrong_type(name, dtype, "a struct around it"))
            break
        inner = {each.name: each.dtype for each in dtype.fields}.get(part)
        if inner is None:
            if field.required:
                faults.append(Fault("missing_column", f"the column {name} is missing"))
            dtype = pl.Null()
            break
        value = pl.col(part) if value is None else value.struct.field(part)
        dtype = inner if isinstance(inner, pl.DataType) else inner()
    if value is None or not field.accepts(dtype):
        if dtype != pl.Null and not field.accepts(dtype):
            faults.append(_wrong_type(name, dtype, field.expected))
        return pl.lit(None)
    return field.read(value, dtype)


def _wrong_type(name: str, got: pl.DataType, expected: str) -> Fault:
    return Fault("wrong_column_type", f"the column {name} is {got}, expected {expected}")
