"""JSONL files, and JSON values of any type, as the columns of `ROWS`.

A JSONL file has a JSON object in each line. Blank lines are skipped, but counted as rows. A cut
file ends within a line, which does not count as a row. An unusable value is read as null.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, cast

import polars as pl

from kp_batch import bounds
from kp_batch.archive.columns import FIELDS, STEP_FIELDS, STEPS, Field, times_from_text
from kp_batch.bounds import LINE_BYTES, TooLargeError, loads, utf8_lines_of
from kp_batch.schemas import ROWS, TIMESTAMP
from kp_batch.text import encodable

MALFORMED_JSON = "malformed_json"
BATCH_BYTES = 64 << 20  # of a batch; a batch of large rows has fewer rows
CUT = "…"  # the end of a shortened text in `rejects`
_TAIL_BYTES = 1  # of a file that are read first: most end with a line break
_STEP_BYTES = 64  # of a step without its texts, about
_UNPARSED = {**ROWS, "created_at": pl.String}
_OBJECT = (dict, Mapping)  # a dict is detected faster than any other mapping


@dataclass(frozen=True)
class Batch:
    """Some rows of a file.

    Attributes:
        rows: a frame of `ROWS`, unchecked.
        as_json: yields the JSON texts of some rows, by ascending numbers, as `read_raw` does. Call
            it while the file is open, before the next batch is read.
    """

    rows: pl.DataFrame
    as_json: Callable[[Sequence[int]], Iterator[str]]


@dataclass(frozen=True)
class TooLarge:
    """A row that is too large to be read."""

    id: Any = None  # id of its trace, if known


def read_batches(path: str, file: IO[bytes], batch_rows: int) -> Iterator[Batch]:
    """Yield the file's rows, in order.

    Raises:
        UnreadableError: the file is not UTF-8.
    """
    whole = (line for line in utf8_lines_of(file) if not _is_torn(line))
    for batch in line_batches(whole, batch_rows):
        rows = rows_from_objects(path, ((row, json_object(line)) for row, line in batch))
        yield Batch(rows, partial(_as_json, dict(batch)))


def is_cut(file: IO[bytes]) -> bool:
    """Whether the file ends within a line."""
    size = file.seek(0, os.SEEK_END)
    tail = b""
    while size and b"\n" not in tail and len(tail) <= LINE_BYTES:
        step = min(size, max(len(tail), _TAIL_BYTES))
        size = file.seek(size - step)
        tail = file.read(step) + tail
    return _is_torn(tail.rpartition(b"\n")[2])


def _is_torn(line: bytes) -> bool:
    """Whether a file was cut within this line: the line has no end, and is not JSON."""
    if line.endswith(b"\n") or not line.strip():
        return False
    try:
        loads(line)
    except TooLargeError:
        return False
    except ValueError:
        return True
    return False


def _as_json(lines: Mapping[int, bytes], rows: Sequence[int]) -> Iterator[str]:
    return (line_as_json(lines[row]) for row in rows)


def line_batches(lines: Iterable[bytes], batch_rows: int) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the lines that are not blank, with their numbers from 0, in batches."""
    batch: list[tuple[int, bytes]] = []
    size = 0
    for row, line in enumerate(lines):
        if line.strip():
            batch.append((row, line))
            size += len(line) + _STEP_BYTES * line.count(b"{")
        if len(batch) >= batch_rows or size >= BATCH_BYTES:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


def read_raw(file: IO[bytes], rows: Iterable[int], _batch_rows: int) -> Iterator[tuple[int, str]]:
    """Yield some lines as JSON texts, with their ascending numbers; see `line_as_json`.

    It advances the iterator of the numbers only as needed.
    """
    wanted = iter(rows)
    row = next(wanted, None)
    for number, line in enumerate(utf8_lines_of(file)):
        if row is None:
            return
        if number == row:
            yield row, line_as_json(line)
            row = next(wanted, None)


def json_object(line: bytes) -> dict[str, Any] | TooLarge | None:
    """Return the JSON object of a line; None if it has none."""
    try:
        value = loads(line)
    except TooLargeError as error:
        return TooLarge(error.value.get("id") if isinstance(error.value, dict) else None)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def line_as_json(line: bytes) -> str:
    """Return a line as JSON text; as a JSON string if it is too large, or not an object."""
    with suppress(RecursionError):  # Python reads slightly deeper nesting than it writes
        if isinstance(value := json_object(line), dict):
            return _object_as_json(line, value)
    return json.dumps(line.decode("utf-8-sig", "replace").rstrip(), ensure_ascii=False)


def _object_as_json(line: bytes, value: dict[str, Any]) -> str:
    try:  # hardly any line has NaN or infinity
        json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(line, parse_float=_parse_finite, parse_constant=_parse_finite))
    text = line.decode(json.detect_encoding(line), "surrogatepass")  # as json.loads does
    return encodable(text.strip())


def _parse_finite(number: str) -> float | str:
    """Return a number; NaN and infinity, which JSON lacks, as text."""
    value = float(number)
    return value if math.isfinite(value) else str(value)


def rows_from_objects(source_file: str, objects: Iterable[tuple[int, Any]]) -> pl.DataFrame:
    """Return a frame of `ROWS` from numbered JSON objects; other values are marked as faults."""
    records = [_record(source_file, row, value) for row, value in objects]
    frame = reject_large(pl.DataFrame(records, schema=_UNPARSED, orient="row"))
    return frame.with_columns(created_at=times_from_text(frame.get_column("created_at")))


def reject_large(frame: pl.DataFrame) -> pl.DataFrame:
    """Reduce rows of a frame of `ROWS` that are too large to their ids."""
    steps = cast("int | None", frame.get_column("step_types").list.len().max()) or 0
    if frame.estimated_size() <= bounds.TEXT_BYTES and steps <= bounds.VALUES:
        return frame
    in_steps = pl.element().str.len_bytes() > bounds.TEXT_BYTES
    is_large = pl.any_horizontal(
        pl.col(pl.String).str.len_bytes() > bounds.TEXT_BYTES,
        pl.col(pl.List(pl.String)).list.eval(in_steps).list.any(),
        pl.col("step_types").list.len() > bounds.VALUES,
    ).fill_null(value=False)
    large = frame.filter(is_large)
    if large.is_empty():
        return frame
    has_short_id = pl.col("trace_id").str.len_bytes() <= bounds.TEXT_BYTES
    rejected = frame.clear(len(large)).with_columns(
        source_file=large.get_column("source_file"),
        row=large.get_column("row"),
        fault=pl.lit(bounds.TOO_LARGE),
        trace_id=large.select(pl.when(has_short_id).then("trace_id")).get_column("trace_id"),
    )
    return pl.concat([frame.remove(is_large), rejected]).sort("row")


def reader(
    dtype: pl.DataType, text: Callable[[Any], str | None] | None = None
) -> Callable[[Any], Any]:
    """Return a function that reads a JSON value as a column of a nested type of `TRACE`.

    It leaves out all fields that the type lacks. The trace's values in `ROWS` stay the same.

    Args:
        dtype: type of the column.
        text: reads a string; None to accept only text.
    """
    if isinstance(dtype, pl.List):
        read_item = reader(cast("pl.DataType", dtype.inner))
        return lambda value: list(map(read_item, value)) if isinstance(value, list) else None
    if isinstance(dtype, pl.Struct):
        types = {field.name: cast("pl.DataType", field.dtype) for field in dtype.fields}
        readers = {name: reader(kind, _TEXTS.get(name)) for name, kind in types.items()}
        return lambda value: (
            {name: read(value.get(name)) for name, read in readers.items()}
            if isinstance(value, _OBJECT)
            else None
        )
    return text if text and dtype == pl.String() else _READ[dtype]


def value_at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at the end of a path of names; None if there is none."""
    for name in path:
        if not isinstance(value, _OBJECT):
            return None
        value = value.get(name)
    return value


def truncated(text: str) -> str:
    """Return a JSON text; if it exceeds `RAW_BYTES`, its beginning, as a JSON string."""
    if len(text.encode()) <= bounds.RAW_BYTES:
        return text
    value = json.loads(text) if text.startswith('"') else text
    # A character takes at most six bytes.
    return json.dumps(value[: bounds.RAW_BYTES // 6 - 1] + CUT, ensure_ascii=False)


def finite(value: Any) -> Any:
    """Return the value with NaN and infinity, at any depth, as text: JSON has neither."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _record(source_file: str, row: int, value: Any) -> tuple[Any, ...]:
    fault = None if isinstance(value, _OBJECT) else MALFORMED_JSON
    if isinstance(value, TooLarge):
        value, fault = {"id": value.id}, bounds.TOO_LARGE
    steps = value_at(value, (STEPS,))
    listed = steps if isinstance(steps, (list, tuple)) else ()
    objects = [step for step in listed if isinstance(step, _OBJECT)]
    return (
        source_file,
        row,
        fault,
        *[read(value_at(value, path)) for path, read in _FIELDS],
        len(listed) - len(objects),
        *[[read(value_at(step, path)) for step in objects] for path, read in _STEP_FIELDS],
    )


def _text(value: Any) -> str | None:
    """Return text; a whole number becomes text, as in a Parquet column."""
    if isinstance(value, str):
        return encodable(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _id(value: Any) -> str | None:
    """Return an id as text; None for half a surrogate: without it, several ids would be equal."""
    text = _text(value)
    return text if not isinstance(value, str) or text == value else None


def _printed(value: Any) -> str | None:
    """Return text unchanged, other values as JSON: a present value is never read as absent."""
    if value is None or isinstance(value, str):
        return _text(value)
    return _text(json.dumps(value, ensure_ascii=False, default=str))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _whole(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return value if fits else None


_READ: Mapping[pl.DataType, Callable[[Any], Any]] = {
    pl.String(): _text,
    TIMESTAMP: _text,
    pl.Boolean(): lambda value: value if isinstance(value, bool) else None,
    pl.Float64(): _number,
    pl.Int64(): _whole,
}
# Fields of steps and outcomes with values of any type.
_TEXTS: Mapping[str, Callable[[Any], str | None]] = dict.fromkeys(
    ("type", "content", "input", "output_summary", "result_summary"), _printed
)
_READ_AS = {
    "trace_id": _id,
    **dict.fromkeys(("type", "step_types", "step_contents"), _printed),
}


def _readers(fields: Mapping[str, Field]) -> list[tuple[tuple[str, ...], Callable[[Any], Any]]]:
    """Return the path of each field, and the function that reads its value."""
    return [
        (field.path, _READ_AS.get(column, _READ[field.dtype])) for column, field in fields.items()
    ]


_FIELDS, _STEP_FIELDS = _readers(FIELDS), _readers(STEP_FIELDS)
