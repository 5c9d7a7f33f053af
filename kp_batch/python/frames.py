"""Turn traces of any kind into files of an archive, which a run can read.

A frame becomes Parquet, with the columns as Polars has them. Mappings become JSONL, in which each
row has its own types; so does a frame with a column that Parquet has no type for.
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
from polars.exceptions import ComputeError

from kp_batch.errors import SettingError
from kp_batch.text import one_line

# Rows that are converted at once; of tiny ones as many as so many bytes hold.
_ROWS, _MOST_ROWS, _BYTES = 1_024, 65_536, 4 << 20
_KINDS = "give a frame of polars or pandas, a table of Arrow, a list of mappings, or paths of files"
_MISSING = ("NAType", "NaTType")  # the types of pandas' NA and NaT
# What Arrow raises where values have no common type, or Parquet has none.
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


def take(traces: Any, folder: Path) -> tuple[str, ...] | Path | None:
    """Return the files of traces of any kind.

    Args:
        traces: see `kp_batch.score`.
        folder: the folder for a file of traces that are not files yet.

    Returns:
        The names of given files; for other traces, the new file, with a row for each in order; None
        if there are no traces.

    Raises:
        SettingError: they are of another kind, or of a type that Polars lacks.
    """
    if isinstance(traces, (str, PathLike)):
        return (fsdecode(traces),)
    if isinstance(traces, Mapping):
        raise SettingError("traces is one mapping; put it into a list: kp_batch.score([trace])")
    if _is_of_pandas(traces, "DataFrame"):
        traces = _from_pandas(traces)
    if (frames := _frames(traces)) is not None:
        return _write(folder, frames)
    if isinstance(traces, Iterable) and not isinstance(traces, bytes):
        return _take_each(iter(cast("Iterable[Any]", traces)), folder)
    raise SettingError(f"traces is of type {type(traces).__name__}; {_KINDS}")


def lines(traces: Any) -> Iterator[bytes]:
    """Return one trace, or traces of any kind but files, as lines of JSON.

    Raises:
        SettingError: they are of another kind, or of a type that Polars lacks.
    """
    if isinstance(traces, Mapping):
        return map(_line, [traces])
    if _is_of_pandas(traces, "DataFrame"):
        traces = _from_pandas(traces)
    if (frames := _frames(traces)) is not None:
        return map(_line, _rows(frames))
    kinds = "give a mapping, a list of them, or a frame"
    if isinstance(traces, Iterable) and not isinstance(traces, (str, bytes, PathLike)):
        each = [*cast("Iterable[Any]", traces)]
        if each and not any(isinstance(trace, Mapping) for trace in each):
            raise SettingError(f"traces contains a value of type {type(each[0]).__name__}; {kinds}")
        return map(_line, each)
    raise SettingError(f"traces is of type {type(traces).__name__}; {kinds}")


def _frames(traces: Any) -> Iterator[pl.DataFrame] | None:
    """Return the rows of a frame, some at a time; None if it is not a frame."""
    if isinstance(traces, pl.LazyFrame):
        return iter(traces.collect_batches(chunk_size=_ROWS, maintain_order=True))
    if isinstance(traces, pl.DataFrame):
        return _slices(traces)
    # One column, of traces, is taken as a list of them.
    is_series = isinstance(traces, pl.Series) or _is_of_pandas(traces, "Series")
    if hasattr(traces, "__arrow_c_stream__") and not is_series:
        return _of_arrow(pa.RecordBatchReader.from_stream(traces))
    return None


def _slices(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    fitting = len(frame) * _BYTES // max(int(frame.estimated_size()), 1)
    return frame.iter_slices(max(min(fitting, _MOST_ROWS), 1))


def _of_arrow(reader: pa.RecordBatchReader) -> Iterator[pl.DataFrame]:
    for batch in reader:
        try:
            frame = cast("pl.DataFrame", pl.from_arrow(batch))
        except ComputeError as error:
            message = f"traces has a column that Polars cannot read: {one_line(str(error))}"
            raise SettingError(f"{message}; cast it, or leave it out") from error
        yield from _slices(frame)


def _from_pandas(traces: Any) -> pl.DataFrame | Iterator[Mapping[str, Any]]:
    """Convert to a frame of Polars, or to mappings if values have no common type."""
    names = [*map(str, traces.columns)]
    if len({*names}) < len(names):
        raise SettingError(f"traces has two columns with the same name: {names}; leave one out")
    try:
        return pl.from_pandas(traces)
    except _NO_TYPE:
        return (
            _without_missing({str(name): value for name, value in row.items()})
            for first in range(0, len(traces), _ROWS)
            for row in traces.iloc[first : first + _ROWS].to_dict("records")
        )


def _is_of_pandas(traces: object, kind: str) -> bool:
    """Whether this is an object of a class of pandas, which need not be installed."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(traces, getattr(pandas, kind))


def _take_each(traces: Iterator[Any], folder: Path) -> tuple[str, ...] | Path | None:
    """Take mappings or paths; the first one decides which."""
    for first in traces:
        if hasattr(first, "__arrow_c_stream__"):
            raise SettingError(
                "traces has several frames; make one of them, for example with concat"
            )
        each = chain([first], traces)
        if not isinstance(first, (str, PathLike)):
            return _write_lines(folder, map(_line, each))
        paths = [*each]
        if odd := {type(path).__name__ for path in paths if not isinstance(path, (str, PathLike))}:
            kind = " and ".join(sorted(odd))
            raise SettingError(f"traces mixes paths with values of type {kind}; {_KINDS}")
        return tuple(map(fsdecode, paths))
    return None


def _write(folder: Path, frames: Iterator[pl.DataFrame]) -> Path | None:
    """Write frames of one schema, each as a row group."""
    first = next((frame for frame in frames if len(frame)), None)
    if first is None:
        return None
    path, each = folder / "traces.parquet", chain([first], frames)
    try:
        writer = _writer(path, first)
    except _NO_TYPE:
        return _write_lines(folder, map(_line, _rows(each)))
    with writer:
        for frame in each:
            writer.write_table(_table(frame))
    return path


def _writer(path: Path, frame: pl.DataFrame) -> pq.ParquetWriter:
    if pl.Object in frame.dtypes:
        raise TypeError("Arrow has no objects")
    return pq.ParquetWriter(
        path,
        _table(frame.clear()).schema,
        compression="none",
        # A file that unpacks to far more than it has would be refused, whoever made it.
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )


def _table(frame: pl.DataFrame) -> pa.Table:
    # Arrow cannot write nested views of strings, which Polars has.
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _rows(frames: Iterable[pl.DataFrame]) -> Iterator[Mapping[str, Any]]:
    return (row for frame in frames for row in frame.iter_rows(named=True))


def _write_lines(folder: Path, lines: Iterable[bytes]) -> Path | None:
    path = folder / "traces.jsonl"
    with path.open("wb") as file:
        file.writelines(lines)
    return path if path.stat().st_size else None


def _line(trace: object) -> bytes:
    """Return a trace as a line of JSON; if JSON cannot hold it, a line that says why."""
    try:
        text = json.dumps(trace, default=_value)
    except (TypeError, ValueError, RecursionError) as error:  # a key, a number, or itself within it
        text = json.dumps(f"JSON cannot hold it: {error}")
    return text.encode() + b"\n"


def _value(value: Any) -> Any:
    """Convert a value that JSON lacks to one that is read as the same."""
    if type(value).__name__ in _MISSING:
        return None
    kinds = (read for kind, read in _AS_JSON if isinstance(value, kind))
    return next(kinds, str)(value)


def _without_missing(value: Any) -> Any:
    """Replace the missing values of pandas by None, at any depth."""
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {name: _without_missing(item) for name, item in items}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_without_missing(item) for item in cast("Iterable[Any]", value)]
    is_missing = isinstance(value, float) and math.isnan(value)
    return None if is_missing or type(value).__name__ in _MISSING else value
