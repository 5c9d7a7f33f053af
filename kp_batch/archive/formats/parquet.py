"""Refused rows once more, as they stand in their file, as JSON."""

import json
import math
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.archive.formats.jsonl import parse_line
from kp_batch.archive.reading import BATCH_ROWS, READ_AHEAD, needed_leaves
from kp_batch.archive.sources import SourceFile, open_file


def read_raw(source: SourceFile, rows: list[int]) -> list[str | None]:
    """Some of the file's rows as JSON; what JSON does not know, such as NaN, stands as text.

    Args:
        source: a file that was read before.
        rows: row numbers, ascending.

    Returns:
        JSON texts in that order; of a line that is no JSON, the line as a JSON string. None where
        the row cannot be read again.
    """
    if source.format == "jsonl":
        with open_file(source.path) as file:
            wanted = set(rows)
            found = {row: _line(line) for row, line in enumerate(file) if row in wanted}
    else:
        # Of a file that is damaged where nothing is needed, what is needed can still be told.
        found = _parquet(source, rows, only_needed=True) | _parquet(source, rows)
    return [found.get(row) for row in rows]


def _line(line: bytes) -> str:
    value = parse_line(line)
    text = line.decode("utf-8-sig", "replace").strip()
    if value is None:
        return json.dumps(text, ensure_ascii=False)
    return text if _finite(value) == value else json.dumps(_finite(value))


def _parquet(source: SourceFile, rows: list[int], *, only_needed: bool = False) -> dict[int, str]:
    found: dict[int, str] = {}
    with open_file(source.path) as file, suppress(pa.ArrowException, OSError):
        for row, text in _parquet_rows(file, rows, only_needed=only_needed):
            found[row] = text  # noqa: PERF403 (what came before an error is kept)
    return found


def _parquet_rows(
    file: IO[bytes], rows: list[int], *, only_needed: bool
) -> Iterator[tuple[int, str]]:
    parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_AHEAD)
    columns = needed_leaves(parquet) if only_needed else None
    first = 0
    for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=columns):
        for row in rows[bisect_left(rows, first) : bisect_left(rows, first + len(batch))]:
            values = {
                name: _value(column[row - first])
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            yield row, json.dumps(values, ensure_ascii=False, default=str)
        first += len(batch)


def _value(scalar: pa.Scalar) -> Any:
    """An Arrow value as JSON has it; one that Python cannot hold, as Arrow holds it."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        names = [field.name for field in scalar.type]
        return {name: _value(scalar[index]) for index, name in enumerate(names)}
    if isinstance(scalar, pa.ListScalar) and not isinstance(scalar, pa.MapScalar):
        return [_value(each) for each in scalar.values]
    try:
        return _finite(scalar.as_py())
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
    except (ValueError, OverflowError):
        return getattr(scalar, "value", None)


def _finite(value: Any) -> Any:
    """The value with NaN and infinity as text, however deep they stand."""
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
