"""Traces of any kind in, the names of files out: what is no file is written as one of an archive.

That is Parquet where it has a type for each column, else JSONL, in which each row has its own
types. A run reads both, so that nothing is read in another way here.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from enum import Enum
from itertools import chain
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.errors import SettingError

# Rows that are converted at once; of tiny ones as many as so many bytes hold.
_ROWS, _MOST_ROWS, _BYTES = 1_024, 65_536, 4 << 20
_KINDS = "give a frame of polars or pandas, a table of Arrow, a list of mappings, or paths of files"
_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_MISSING = ("NAType", "NaTType")  # the types of pandas' NA and NaT
# What pandas and Arrow raise where values, or types, have no column in Parquet.
_NO_TYPE = (pa.ArrowException, OverflowError, TypeError, ValueError)
_AS_JSON: Sequence[tuple[Any, Callable[[Any], Any]]] = (  # the first one counts
    (pa.Scalar, lambda value: value.as_py()),
    (Enum, lambda value: value.value),
    (Mapping, dict),
    (date | time, lambda value: value.isoformat()),
    (bytes, lambda value: value.decode("utf-8", "replace")),
    (Decimal, float),
    (np.datetime64, lambda value: None if np.isnat(value) else str(value)),
    (np.generic, lambda value: value.item()),
    (Iterable, list),
)

_Tables = tuple[pa.Schema, Iterable[pa.Table]]
_Lines = Iterator[bytes]


def take(traces: Any, folder: Path) -> tuple[str, ...] | Path | None:
    """Take traces of any kind.

    Args:
        traces: see `kp_batch.score`.
        folder: where the file goes that they are written to.

    Returns:
        The names of files as they are; of all else the file that has a row for each of theirs, in
        their order; None where there are none.

    Raises:
        SettingError: they are of no such kind.
    """
    if isinstance(traces, (str, PathLike)):
        return (fsdecode(traces),)
    if isinstance(traces, Mapping):
        raise SettingError("traces is one mapping; put it into a list: kp_batch.score([trace])")
    if frame := _frame(traces):
        return _write(folder, *frame)
    if isinstance(traces, Iterable) and not isinstance(traces, bytes):
        return _take_each(iter(cast("Iterable[Any]", traces)), folder)
    raise SettingError(f"traces is of type {type(traces).__name__}; {_KINDS}")


def lines(traces: Any) -> Iterator[bytes]:
    """One trace, or traces of any kind but files, as lines of JSON.

    Raises:
        SettingError: they are of no such kind.
    """
    if isinstance(traces, Mapping):
        return map(_line, [traces])
    if frame := _frame(traces):
        return frame[1]()
    if isinstance(traces, Iterable) and not isinstance(traces, (str, bytes, PathLike)):
        return map(_line, cast("Iterable[Any]", traces))
    kinds = "give a mapping, a list of them, or a frame"
    raise SettingError(f"traces is of type {type(traces).__name__}; {kinds}")


def _frame(traces: Any) -> tuple[Callable[[], _Tables], Callable[[], _Lines]] | None:
    """What gives the tables, or else the lines, of a frame; None if it is none."""
    if isinstance(traces, pl.DataFrame | pl.LazyFrame):
        return lambda: _polars_tables(traces), lambda: _polars_lines(traces)
    if _is_pandas(traces, "DataFrame"):
        names = [*map(str, traces.columns)]
        if len({*names}) < len(names):
            raise SettingError(f"traces has two columns of one name: {names}; leave one out")
        return lambda: _pandas_tables(traces), lambda: _pandas_lines(traces)
    if hasattr(traces, "__arrow_c_stream__") and not _is_series(traces):
        reader = pa.RecordBatchReader.from_stream(traces)
        return lambda: _arrow_tables(reader), lambda: _arrow_lines(reader)
    return None


def _take_each(traces: Iterator[Any], folder: Path) -> tuple[str, ...] | Path | None:
    """Take mappings or paths, of which the first one tells what they are."""
    for first in traces:
        if hasattr(first, "__arrow_c_stream__"):
            raise SettingError("traces has several frames; make one of them, such as by concat")
        each = chain([first], traces)
        if not isinstance(first, (str, PathLike)):
            return _write_lines(folder, map(_line, each))
        paths = [*each]
        if odd := next((path for path in paths if not isinstance(path, (str, PathLike))), None):
            kind = type(odd).__name__
            raise SettingError(f"traces has paths, and what is of type {kind}; {_KINDS}")
        return tuple(map(fsdecode, paths))
    return None


def _is_pandas(traces: object, kind: str) -> bool:
    """Whether it is of this class of pandas, which need not be installed."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(traces, getattr(pandas, kind))


def _is_series(traces: object) -> bool:
    """Whether it is one column, of traces: it is taken as a list of them."""
    return isinstance(traces, pl.Series) or _is_pandas(traces, "Series")


def _write(
    folder: Path, tables_of: Callable[[], _Tables], lines_of: Callable[[], _Lines]
) -> Path | None:
    """Write tables as Parquet, or the same as lines of JSON where it has no such types."""
    path, rows = folder / "traces.parquet", 0
    try:
        schema, tables = tables_of()
        stored = pa.schema([field.with_type(_stored(field.type)) for field in schema])
        # Without dictionaries: of a file that unpacks to far more than it has, nothing is read.
        writer = pq.ParquetWriter(
            path,
            stored,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            store_schema=False,
        )
    except _NO_TYPE:
        return _write_lines(folder, lines_of())
    with writer:
        for table in tables:
            writer.write_table(
                table.cast(stored), row_group_size=_fitting(len(table), table.nbytes)
            )
            rows += len(table)
    return path if rows else None


def _fitting(rows: int, size: int) -> int:
    """How many of some rows are taken at once."""
    return max(min(rows * _BYTES // max(size, 1), _MOST_ROWS), 1)


def _stored(dtype: pa.DataType) -> pa.DataType:
    """The type as Parquet has it.

    Raises:
        ArrowNotImplementedError: it has none, or Arrow cannot write it everywhere.
    """
    if dtype in _VIEWS:
        return _VIEWS[dtype]
    if isinstance(dtype, pa.BaseExtensionType):
        return _stored(dtype.storage_type)
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_stored(field.type)) for field in dtype])
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        field = dtype.value_field
        return pa.large_list(field.with_type(_stored(field.type)))
    if pa.types.is_list_view(dtype) or pa.types.is_large_list_view(dtype):
        raise pa.ArrowNotImplementedError(str(dtype))
    if any(_stored(each) != each for each in _inner(dtype)):
        raise pa.ArrowNotImplementedError(str(dtype))
    return dtype


def _inner(dtype: pa.DataType) -> Iterator[pa.DataType]:
    """The types within a map, a list of fixed size or a dictionary."""
    if pa.types.is_map(dtype):
        yield from (dtype.key_type, dtype.item_type)
    elif pa.types.is_fixed_size_list(dtype) or pa.types.is_dictionary(dtype):
        yield dtype.value_type


def _polars_tables(traces: pl.DataFrame | pl.LazyFrame) -> _Tables:
    # Arrow cannot write nested views of strings, which Polars has.
    level, schema = pl.CompatLevel.oldest(), traces.collect_schema()
    if pl.Object in schema.dtypes():
        raise TypeError("Arrow has no objects")
    return schema.to_frame().to_arrow(compat_level=level).schema, (
        part.to_arrow(compat_level=level) for part in _parts(traces)
    )


def _parts(traces: pl.DataFrame | pl.LazyFrame) -> Iterator[pl.DataFrame]:
    if isinstance(traces, pl.LazyFrame):
        return iter(traces.collect_batches(chunk_size=_ROWS, maintain_order=True))
    return traces.iter_slices(_fitting(len(traces), int(traces.estimated_size())))


def _polars_lines(traces: pl.DataFrame | pl.LazyFrame) -> _Lines:
    return (_line(row) for part in _parts(traces) for row in part.iter_rows(named=True))


def _pandas_tables(traces: Any) -> _Tables:
    table = pa.Table.from_pandas(traces, preserve_index=False)
    return table.schema, [table]


def _pandas_lines(traces: Any) -> _Lines:
    for first in range(0, len(traces), _ROWS):
        for row in traces.iloc[first : first + _ROWS].to_dict("records"):
            yield _line(_without_missing({str(name): value for name, value in row.items()}))


def _arrow_tables(reader: pa.RecordBatchReader) -> _Tables:
    return reader.schema, (pa.Table.from_batches([batch]) for batch in reader)


def _arrow_lines(reader: pa.RecordBatchReader) -> _Lines:
    for batch in reader:
        for first in range(0, len(batch), _ROWS):
            yield from map(_line, batch.slice(first, _ROWS).to_pylist())


def _write_lines(folder: Path, lines: Iterable[bytes]) -> Path | None:
    path = folder / "traces.jsonl"
    with path.open("wb") as file:
        file.writelines(lines)
    return path if path.stat().st_size else None


def _line(trace: object) -> bytes:
    """A trace as a line of JSON; of one that JSON cannot hold, why: it is no trace."""
    try:
        text = json.dumps(trace, default=_value)
    except (TypeError, ValueError, RecursionError) as error:  # a key, a number, or itself within it
        text = json.dumps(f"JSON cannot hold it: {error}")
    return text.encode() + b"\n"


def _value(value: Any) -> Any:
    """A value that JSON lacks as one that it has, which is read as the same."""
    if type(value).__name__ in _MISSING:
        return None
    kinds = (read for kind, read in _AS_JSON if isinstance(value, kind))
    return next(kinds, str)(value)


def _without_missing(value: Any) -> Any:
    """The value with None for what is missing in a frame of pandas, at any depth."""
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {name: _without_missing(item) for name, item in items}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_without_missing(item) for item in cast("Iterable[Any]", value)]
    is_missing = isinstance(value, float) and math.isnan(value)
    return None if is_missing or type(value).__name__ in _MISSING else value
