"""Frames of rows, for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from datetime import date, datetime
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin, get_type_hints

if TYPE_CHECKING:  # commands that show no frame start without
    import polars as pl

# Columns whose texts are times or days, which JSON does not have.
_TIMES = frozenset({"created_at", "finished_at"})
_DAYS = frozenset({"day"})
_PARSED: Mapping[str, Any] = MappingProxyType(
    dict.fromkeys(_TIMES, datetime.fromisoformat) | dict.fromkeys(_DAYS, date.fromisoformat)
)


def frame(types: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> "pl.DataFrame":
    """Make a frame of rows; without rows it has the same columns and types.

    Integers, floats, booleans and texts are Int64, Float64, Boolean and String. Times are Datetime
    in microseconds of UTC, days are Date. Tuples are lists, and dataclasses are structs. A value of
    any type, such as that of a setting, is the text of its JSON.

    Args:
        types: the Python type of each column.
        rows: the values by column.
    """
    import polars as pl

    def series(name: str, hint: Any) -> pl.Series:
        parse = _PARSED.get(name) or (json.dumps if hint is Any else _plain)
        values = [None if row[name] is None else parse(row[name]) for row in rows]
        return pl.Series(name, values, _dtype(name, hint))

    return pl.DataFrame([series(name, hint) for name, hint in types.items()])


def _dtype(name: str, hint: Any) -> Any:
    """Return the type of Polars for a column's name and type."""
    import polars as pl

    if name in _TIMES:
        return pl.Datetime("us", "UTC")
    if name in _DAYS:
        return pl.Date()
    return _dtype_of(hint)


def _dtype_of(hint: Any) -> Any:
    import polars as pl

    hint = _without_none(hint)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        names = [field.name for field in fields(hint)]
        return pl.Struct({name: _dtype(name, hints[name]) for name in names})
    if get_origin(hint) in {tuple, list}:
        return pl.List(_dtype_of(get_args(hint)[0]))
    plain = {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64()}
    return plain.get(hint, pl.String())


def _without_none(hint: Any) -> Any:
    """Return the type itself of one that may be None."""
    if get_origin(hint) in {Union, UnionType}:
        [hint] = [each for each in get_args(hint) if each is not NoneType]
    return hint


def _plain(value: Any) -> Any:
    """Return the value with its dataclasses as mappings, which Polars reads as structs."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [*map(_plain, cast("Sequence[Any]", value))]
    return value
