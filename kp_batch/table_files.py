"""Tables in files that a user names: CSV, Parquet, or JSON lines."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import polars as pl
from polars.exceptions import PolarsError

from kp_batch.bounds import TooLargeError, loads, utf8_lines_of
from kp_batch.errors import KpBatchError, UnreadableError
from kp_batch.files import is_named_pipe
from kp_batch.text import one_line, printable, shortened

_SHOWN = 200  # characters of a library's message


def is_table(path: Path) -> bool:
    """Whether a name ends as that of a table."""
    return path.suffix.lower() in _READERS


def read_table(path: Path, names: Sequence[str] = ()) -> pl.DataFrame:
    """Read a table from the kind of file that the ending of its name says.

    Values of CSV and JSON lines are texts, so that the id 0001 stays as it is. Memory holds a CSV
    file, or the named columns of others.

    Args:
        path: the file, whose name ends with .csv, .parquet, .jsonl or .ndjson.
        names: the columns to read; see `named_columns`.

    Raises:
        KpBatchError: it is missing, is not a file, or cannot be read.
    """
    name, ending = printable(str(path)), path.suffix.lower()
    if ending not in _READERS:
        raise KpBatchError(f"{name} does not end with {', '.join(_READERS)}; name such a file")
    try:
        if path.is_dir() or not path.exists() or is_named_pipe(path):
            kind = "a folder" if path.is_dir() else "a pipe" if path.exists() else "missing"
            raise KpBatchError(f"{name} is {kind}; name a file")
        return _READERS[ending](path, names)
    except (OSError, ValueError, UnreadableError, PolarsError) as error:
        reason = getattr(error, "strerror", None) or one_line(str(error))
        raise KpBatchError(f"{name} cannot be read: {shortened(reason, _SHOWN)}; fix it") from error


def named_columns(frame: pl.LazyFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return columns of a frame, null where it lacks one.

    Args:
        frame: the frame.
        names: the columns; `a.b` is the field b of the structs in column a. Without names, all
            columns are returned.
    """
    schema = frame.collect_schema()
    return frame.select(_column(schema, name) for name in names or schema).collect()


def _column(schema: pl.Schema, name: str) -> pl.Expr:
    column, _, field = name.partition(".")
    dtype = schema.get(column)
    if name in schema:
        return pl.col(name)
    if isinstance(dtype, pl.Struct) and field in dtype.to_schema():
        return pl.col(column).struct.field(field).alias(name)
    return pl.repeat(None, pl.len()).alias(name)


def text_columns(rows: Iterable[Mapping[Any, Any]], names: Sequence[Any] = ()) -> pl.DataFrame:
    """Make columns of texts from mappings, whose values may have any types.

    Args:
        rows: the mappings.
        names: the columns; see `named_columns`.
    """
    if not names:
        rows = [*rows]
        names = [*dict.fromkeys(name for row in rows for name in row)]
    texts = [[_text(_value(row, name)) for name in names] for row in rows]
    return pl.DataFrame(texts, dict.fromkeys(names, pl.String), orient="row")


def _value(row: Mapping[Any, Any], name: Any) -> Any:
    if name in row:
        return row[name]
    column, _, field = str(name).partition(".")
    within = row.get(column)
    return within.get(field) if isinstance(within, Mapping) else None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _csv(path: Path, names: Sequence[str]) -> pl.DataFrame:
    # Not a scan: with a projection, it would not refuse rows with more fields than the header.
    return named_columns(pl.read_csv(path, infer_schema=False, glob=False).lazy(), names)


def _parquet(path: Path, names: Sequence[str]) -> pl.DataFrame:
    return named_columns(pl.scan_parquet(path, glob=False), names)


def _lines(path: Path, names: Sequence[str]) -> pl.DataFrame:
    with path.open("rb") as file:
        return text_columns(_objects(utf8_lines_of(file), printable(str(path))), names)


def _objects(lines: Iterable[bytes], name: str) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = loads(line)
        except (ValueError, TooLargeError) as error:
            raise KpBatchError(f"{name} has no JSON in line {number:,}: {error}; fix it") from error
        if not isinstance(row, dict):
            raise KpBatchError(f"{name} has no JSON object in line {number:,}; fix it")
        yield cast("dict[str, Any]", row)


_READERS: Mapping[str, Callable[[Path, Sequence[str]], pl.DataFrame]] = MappingProxyType(
    {".csv": _csv, ".parquet": _parquet, ".jsonl": _lines, ".ndjson": _lines}
)
